"""Numbers and shapes as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_PREFIXES = ("", "K", "M", "G", "T", "P", "E")


def significant(value: float, digits: int = 4) -> str:
    """``value`` with that many significant digits and no exponent, such as ``0.01234`` or ``1,234``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = min(9, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:,.{decimals}f}"


def short_count(value: float) -> str:
    """``value`` with a decimal prefix, such as ``4.1 G``."""
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{value:.3g} {_PREFIXES[power]}".strip()


def short_bytes(size: float) -> str:
    """A size in powers of 1024, such as ``97.5 MiB``."""
    power = 0
    while abs(size) >= 1023.5 and power < len(_PREFIXES) - 1:
        size /= 1024
        power += 1
    return f"{size:.4g} {_PREFIXES[power]}iB" if power else f"{size:.0f} B"


def shape_text(shape: Sequence[int]) -> str:
    """A shape such as ``1x64x112x112``; empty for a scalar."""
    return "x".join(map(str, shape))
