import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_clone() -> Callable[[str, str], Path]:
    """The clone of a public repository that an environment variable names; without it the test is skipped."""

    def find(variable: str, repository: str) -> Path:
        folder = os.environ.get(variable)
        if not folder:
            pytest.skip(f"set {variable} to a clone of {repository}")
        return Path(folder)

    return find
