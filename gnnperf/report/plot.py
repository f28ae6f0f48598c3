"""Predictions as a figure: where the time goes on every device."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from gnnperf.prediction import OVERHEAD, Prediction
from gnnperf.report.breakdown import Part, by_module, by_op_class
from gnnperf.report.colors import OP_CLASS_COLORS, OVERHEAD_COLOR
from gnnperf.report.pictures import check_suffix

_PARTS = 12


def to_plot(source: str, predictions: Sequence[Prediction], suffix: str) -> bytes:
    """A picture of the time by op class, and of the costliest parts, on every device.

    Args:
        source: What was predicted, for the title.
        predictions: Of one graph, on one device or more.
        suffix: One of ``gnnperf.report.pictures.SUFFIXES``.

    Raises:
        ValueError: If the suffix is another one.
    """
    check_suffix(f"plot{suffix}")
    import matplotlib
    from matplotlib.figure import Figure

    parts = by_module(predictions, _PARTS)
    height = 2.2 + 0.45 * len(predictions) + 0.3 * len(parts) * max(1.0, 0.5 * len(predictions))
    with matplotlib.rc_context({"svg.hashsalt": "gnnperf", "text.parse_math": False}):
        figure = Figure(figsize=(10, height), layout="constrained")
        classes_axes, parts_axes = figure.subplots(2, 1, height_ratios=[1 + 0.45 * len(predictions), 0.3 * len(parts)])
        figure.suptitle(source)
        _draw_classes(classes_axes, predictions)
        _draw_parts(parts_axes, parts, predictions)
        content = io.BytesIO()
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix.lower())
        figure.savefig(content, format=suffix.lower().lstrip("."), dpi=150, metadata=metadata)
    return content.getvalue()


def _draw_classes(axes, predictions: Sequence[Prediction]) -> None:  # type: ignore[no-untyped-def]
    """A bar for every device, stacked by op class; the overhead ends it, or is cut off where it is negative."""
    by_device = [by_op_class(p) for p in predictions]
    positions = np.arange(len(predictions))
    left = np.zeros(len(predictions))
    for name, color in OP_CLASS_COLORS.items():
        widths = np.array([times_ms.get(name, 0.0) for times_ms in by_device])
        if widths.any():
            axes.barh(positions, widths, left=left, color=color, label=name)
            left += widths
    overhead = np.array([p.overhead_ms for p in predictions])
    axes.barh(positions, overhead, left=left, color=OVERHEAD_COLOR, alpha=0.6, hatch="///", label=OVERHEAD)
    axes.set_yticks(positions, [p.device.id for p in predictions])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")


def _draw_parts(axes, parts: Sequence[Part], predictions: Sequence[Prediction]) -> None:  # type: ignore[no-untyped-def]
    """A bar for every part and device."""
    positions = np.arange(len(parts))
    thickness = 0.8 / len(predictions)
    for number, prediction in enumerate(predictions):
        times_ms = [part.times_ms[number] for part in parts]
        offset = (number - (len(predictions) - 1) / 2) * thickness
        axes.barh(positions + offset, times_ms, thickness, label=prediction.device.id)
    axes.set_yticks(positions, [part.name or "(top level)" for part in parts])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    if len(predictions) > 1:
        axes.legend(loc="lower right", frameon=False, fontsize="small")
