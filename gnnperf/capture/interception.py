"""Intercept torch ops above autograd, wherever they are called from.

Autocast casts, and ops that must stay whole although torch would take them apart (attention, recurrent layers, linear),
have to be seen before autograd: their backward must see the casts, and must pair with the whole op. A
``TorchFunctionMode`` sees only calls made from Python. torch's own autocast lives at a dispatch key above autograd, so
we do the same: kernels registered at the autocast key of a backend that this process does not use, switched on for the
current thread while a trace runs. The kernels ask the running trace what to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

# A backend without a kernel or a fallback of its own at its autocast key.
_DEVICE = "ipu"
_KEY_NAME = "AutocastIPU"
_KEY = getattr(torch._C.DispatchKey, _KEY_NAME)
_KEY_SET = torch._C.DispatchKeySet(_KEY)

Op = torch._ops.OpOverload


class Interceptor(Protocol):
    """What a trace does with an intercepted op."""

    def intercept(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``op`` in the trace's own way; called with interception off."""


_active = threading.local()
_libraries: list[torch.library.Library] = []


def find_op(name: str) -> Op | None:
    """The ATen overload called ``name`` (``add.Tensor``; no dot means ``default``), or None in a torch without it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def register(names: list[str]) -> None:
    """Route the ATen ops ``names`` to the running trace; called once, at import, by the modules that handle them."""
    if not _libraries:
        passthrough = torch.library.Library("_", "IMPL", _KEY_NAME)
        passthrough.fallback(torch.library.fallthrough_kernel)
        _libraries.append(passthrough)
        _libraries.append(torch.library.Library("aten", "IMPL", _KEY_NAME))
    for name in names:
        if (op := find_op(name)) is not None:
            _libraries[1].impl(name, _kernel(op), _KEY_NAME)


def _kernel(op: Op) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY_SET):
            interceptor: Interceptor | None = getattr(_active, "interceptor", None)
            return op(*args, **kwargs) if interceptor is None else interceptor.intercept(op, args, kwargs)

    return run


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Send the registered ops of this thread to ``interceptor``; whatever was set before is set again afterwards."""
    previous, enabled = getattr(_active, "interceptor", None), torch.is_autocast_enabled(_DEVICE)
    _active.interceptor = interceptor
    torch.set_autocast_enabled(_DEVICE, True)
    try:
        with torch._C._IncludeDispatchKeyGuard(_KEY):
            yield
    finally:
        torch.set_autocast_enabled(_DEVICE, enabled)
        _active.interceptor = previous


def suspended() -> AbstractContextManager[None]:
    """No interception for a while: an op that is recorded already may be made of others."""
    return torch._C._ExcludeDispatchKeyGuard(_KEY_SET)
