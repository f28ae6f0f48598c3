"""What all mains share: a user's mistake is one line, not a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException


def one_line_errors(main: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """A main that ends with a line on stderr and exit code 2 where ``main`` raises a ``ValueError``."""

    @functools.wraps(main)
    def wrapped(config: DictConfig) -> None:
        try:
            main(config)
        except (ValueError, OmegaConfBaseException) as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise SystemExit(2) from None

    return wrapped
