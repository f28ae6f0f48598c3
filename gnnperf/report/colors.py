"""One colour for each op class, the same in every picture."""

from __future__ import annotations

from gnnperf.cost.registry import OP_CLASSES

_COLORS = """#4e79a7 #2f4b7c #b07aa1 #9c755f #59a14f #8cd17d #f1ce63 #edc948 #76b7b2 #f28e2b #ff9da7 #d37295
    #e15759""".split()
OP_CLASS_COLORS: dict[str, str] = dict(zip(OP_CLASSES, _COLORS, strict=True))
OVERHEAD_COLOR = "#bab0ac"
