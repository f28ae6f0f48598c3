"""What all mains share: a user's mistake is one line, not a traceback, and of several processes only one speaks."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from gnnperf.distributed import Ranks


def one_line_errors(main: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """A main that ends with a line on stderr and exit code 2 where ``main`` raises a ``ValueError``.

    Of several processes under ``torchrun`` the first alone says it.
    """

    @functools.wraps(main)
    def wrapped(config: DictConfig) -> None:
        try:
            main(config)
        except (ValueError, OmegaConfBaseException) as error:
            if _first():
                print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise SystemExit(2) from None

    return wrapped


def hydra_writes_once() -> None:
    """Let Hydra write its own files, the configuration and a log, in the first process alone; call it before main."""
    if not _first():
        sys.argv += ["hydra.output_subdir=null", "hydra/job_logging=disabled", "hydra/hydra_logging=disabled"]


@contextlib.contextmanager
def only_first_prints(ranks: Ranks) -> Iterator[None]:
    """Let nothing that other ranks print, progress bars among it, be seen."""
    if ranks.first:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"
