"""Know which submodule runs, and in which one an error began."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class ModulePath:
    """The dotted path of the submodule that runs now, kept by hooks that are removed afterwards."""

    def __init__(self) -> None:
        self._running: list[str] = []
        self._error: BaseException | None = None
        self._error_path = ""

    @property
    def current(self) -> str:
        """Path of the submodule that runs now; empty in the outermost module and outside."""
        return self._running[-1] if self._running else ""

    def of_error(self, error: BaseException) -> str:
        """Path of the innermost submodule that ``error`` left; empty if it began in the outermost module."""
        return self._error_path if error is self._error else ""

    @contextmanager
    def follow(self, module: torch.nn.Module) -> Iterator[None]:
        """Follow the calls of ``module`` and its submodules."""
        outer = sys.exc_info()[1]  # whatever the caller is handling is no error of the module

        def leave(*_: object) -> None:
            path = self._running.pop()
            error = sys.exc_info()[1]
            if error is not None and error is not outer and error is not self._error:
                self._error, self._error_path = error, path

        handles = []
        for name, part in module.named_modules():
            # names may hold anything, and a terminal obeys what a line break or an escape says
            path = name if name.isprintable() else name.encode("unicode_escape").decode()
            handles.append(
                part.register_forward_pre_hook(lambda *_, path=path: self._running.append(path), prepend=True)
            )
            handles.append(part.register_forward_hook(leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
