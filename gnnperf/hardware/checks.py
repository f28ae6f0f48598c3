"""Checks of what people write, with errors that say what is wrong and what would be right."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from typing import Any


def mapping(what: str, value: Any, allowed: tuple[str, ...]) -> dict[str, Any]:
    """``value``, if it is a mapping whose keys are all allowed; ``what`` names it in the error.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a mapping of {', '.join(allowed)}, not {short(value)}")
    for key in value:
        if key not in allowed:
            known = "" if did_you_mean(key, allowed) else f"; known are {', '.join(allowed)}"
            raise ValueError(f"{what} has the unknown field {short(key)}{did_you_mean(key, allowed)}{known}")
    return value


def line_of_text(what: str, value: Any) -> str:
    """``value``, if it is text of one line with something in it.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{what} must be a line of text, not {short(value)}")
    return value


def number(what: str, value: Any, limits: tuple[float, float, str], whole: bool = False) -> Any:
    """A finite number within its limits; text such as ``1e12``, which YAML does not take for a number, is one too.

    Args:
        what: Its name in the error.
        value: What was written.
        limits: Lowest, highest, and the unit.
        whole: Whether it must be an integer, and is returned as one; a float otherwise.

    Raises:
        ValueError: If it is not such a number.
    """
    low, high, unit = limits
    if isinstance(value, str):
        try:
            value = int(value) if re.fullmatch(r"\d{1,20}", value) else float(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number ({unit}), not {short(value)}")
    if not low <= value <= high:  # also false for nan
        problem = "" if 0 < value < math.inf else "positive and finite, "
        raise ValueError(f"{what} must be {problem}in {unit} between {low:g} and {high:g}, not {short(value)}")
    if not whole:
        return float(value)
    if value != int(value):
        raise ValueError(f"{what} must be a whole number ({unit}), not {short(value)}")
    return int(value)


def one_of(what: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    """Check that ``value`` is one of the words allowed.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(str, allowed))}, not {short(value)}")


def did_you_mean(value: Any, allowed: tuple[str, ...]) -> str:
    """The end of an error that offers the nearest words; empty if none is near."""
    text = value.lower().replace("_", "-") if isinstance(value, str) else ""
    plain = {item.lower().replace("_", "-"): item for item in allowed}
    near = difflib.get_close_matches(text[:100], plain, n=3, cutoff=0.6)
    return f": did you mean {', '.join(plain[item] for item in near)}?" if near else ""


def short(value: Any) -> str:
    """What the user wrote, short enough for one line."""
    writer = reprlib.Repr()
    writer.maxstring, writer.maxlevel, writer.maxdict, writer.maxlist = 80, 2, 4, 4
    return writer.repr(value)
