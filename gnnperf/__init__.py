"""How long will this network take on that device, and where does the time go?"""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnperf.capture import capture
    from gnnperf.graph import ComputationGraph
    from gnnperf.hardware import Device, Software
    from gnnperf.prediction import Prediction, predict
    from gnnperf.sources import load, zoo

__version__ = "0.1.0"
__all__ = [
    "ComputationGraph",
    "Device",
    "Prediction",
    "Software",
    "__version__",
    "capture",
    "devices",
    "load",
    "predict",
    "zoo",
]

# Public name to the module that has it. Nothing is imported before it is used: torch_geometric alone takes seconds.
_HOMES = {
    "ComputationGraph": "graph",
    "Device": "hardware",
    "Prediction": "prediction",
    "Software": "hardware",
    "capture": "capture",
    "load": "sources",
    "predict": "prediction",
    "zoo": "sources",
}


def devices() -> dict[str, Device]:
    """Every device of the catalogue by its id."""
    from gnnperf.hardware import catalogue

    return dict(catalogue())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with warnings.catch_warnings():  # libraries raise some while they are imported, which are not the user's
        warnings.simplefilter("ignore")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package as a module that keeps its public names.

    Once imported, a submodule becomes an attribute of its package, and would hide the function of the same name:
    ``gnnperf.capture`` stays the function, and ``from gnnperf.capture import ...`` works all the same.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in _HOMES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
