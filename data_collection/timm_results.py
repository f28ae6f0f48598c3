"""Import the benchmark results that come with huggingface/pytorch-image-models.

Each file ``results/benchmark-{infer,train}-{precision}-{nchw,nhwc}-{torch}-{cuda,cpu}-{device}[-dynamo].csv`` holds
one device and one software. Licensed under Apache-2.0 by Ross Wightman.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from data_collection.imports import Import
from gnnperf.graph import PRECISIONS
from gnnperf.records import Record

SOURCE = "huggingface+pytorch-image-models"
DEVICES = {
    "rtx3090": "rtx-3090",
    "rtx4090": "rtx-4090",
    "4090": "rtx-4090",
    "pro6000maxq": "rtx-pro-6000-max-q",
    "i9_10940x": "i9-10940x",
    "i7_12700h": "i7-12700h",
}
_FILE_NAME = re.compile(
    r"benchmark-(?P<mode>infer|train)-(?P<precision>\w+)-(?P<layout>nchw|nhwc)-pt(?P<version>\d{3,})"
    r"-(?P<backend>[a-z0-9]+)-(?P<device>\w+?)(?P<compiled>-dynamo)?\.csv"
)

# The runs whose networks had their training-time branches folded first; their parameter counts show it.
_FOLDED_VERSIONS = frozenset({"291"})

# All files were measured with timm's ``--fast-norm``, which acts under autocast only: without it, networks of many
# layer norms would run faster than the bandwidth of their GPU allows. Pull request 1747 of the repository timed
# convnext_tiny both ways on an RTX 3090; the results fit its faster figure.
_AUTOCAST = ("amp", "amp_bf16")

# Every name that the results use -> (family, name in today's timm or None where it is gone).
Names = Mapping[str, tuple[str, str | None]]


def names_from_timm() -> Names:
    """Families and present names as the installed timm knows them."""
    from timm.models import _registry

    names: dict[str, tuple[str, str | None]] = {
        name: (_registry._model_to_module[name], name) for name in _registry._model_entrypoints
    }
    for module, renamed in _registry._module_to_deprecated_models.items():
        for old, new in renamed.items():
            names[old] = (module, new.partition(".")[0] if new else None)
    return names


def names_from_file(path: str | Path) -> Names:
    """Families and present names from a JSON file ``{name: [family, present name or null]}``.

    Raises:
        ValueError: If it cannot be read or has another form.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: (family, present) for name, (family, present) in content.items()}
    except OSError as error:
        raise ValueError(f"cannot read the names in {str(path)!r}: {error.strerror}") from error
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{str(path)!r} does not map names to [family, present name or null]") from error


def import_timm(clone: str | Path, names: Names) -> Import:
    """Read all result files of a clone of pytorch-image-models.

    Args:
        clone: Its folder, or any folder with its ``results``.
        names: See ``Names``.

    Raises:
        ValueError: If there are no result files, or a row of one is damaged.
    """
    files = sorted((Path(clone) / "results").glob("benchmark-*.csv"))
    if not files:
        raise ValueError(
            f"no results/benchmark-*.csv in {str(clone)!r}: give the folder of a clone of pytorch-image-models"
        )
    result = Import()
    for path in files:
        _import_file(path, names, result)
    return result


def _import_file(path: Path, names: Names, result: Import) -> None:
    parsed = _FILE_NAME.fullmatch(path.name)
    understood = parsed is not None and parsed["device"] in DEVICES and parsed["precision"] in PRECISIONS
    with path.open(newline="", encoding="utf-8") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            if parsed is None or not understood:
                result.skipped["file name not understood or device not known"] += 1
                continue
            try:
                imported = _import_row(row, parsed, names)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path.name}:{line}: not a row of benchmark results ({error!r})") from error
            if isinstance(imported, str):
                result.skipped[imported] += 1
            else:
                result.records.append(replace(imported, source_file=f"results/{path.name}", source_line=line))


def _import_row(row: dict[str, str], parsed: re.Match[str], names: Names) -> Record | str:
    """The record of a row of the file ``parsed``, or why there is none."""
    prefix, name = parsed["mode"], row["model"].partition(".")[0]
    family, present = names.get(name, ("", None))
    batch_size, rate = _number(row[f"{prefix}_batch_size"]), _number(row[f"{prefix}_samples_per_sec"])
    if not batch_size or not rate:
        return "no measurement"
    if present is None:
        return "architecture gone from timm" if family else "architecture not known"
    return Record(
        source=SOURCE,
        source_file="",
        source_line=0,
        network=f"timm:{present}",
        family=family,
        device=DEVICES[parsed["device"]],
        framework="torch",
        version=_version(parsed["version"]),
        compiled=parsed["compiled"] is not None,
        memory_format="channels_last" if parsed["layout"] == "nhwc" else "channels_first",
        mode="inference" if prefix == "infer" else "training",
        precision=parsed["precision"],
        batch_size=int(batch_size),
        image_size=int(row[f"{prefix}_img_size"]),
        # The step time of the files is not always one batch; the rate is.
        time_ms=1e3 * batch_size / rate,
        label="forward" if prefix == "infer" else "forward, loss, backward, sgd step",
        reparameterized=prefix == "infer" and parsed["version"] in _FOLDED_VERSIONS,
        fast_norm=parsed["precision"] in _AUTOCAST,
        # what timm makes of its default, ``sgd``
        optimizer="" if prefix == "infer" else "momentum",
        parameter_count=round(1e6 * float(row["param_count"])),
    )


def _version(digits: str) -> str:
    """``240`` is 2.4.0, ``113`` is 1.13, ``1121`` is 1.12.1 and ``2100`` is 2.10.0; ``110`` is taken for 1.10."""
    two_digit_minor = len(digits) > 3 or digits.startswith("11")
    return f"{digits[0]}.{digits[1:3] if two_digit_minor else digits[1]}"


def _number(text: str | None) -> float:
    """A positive number, 0 where the file has none."""
    value = float(text) if text else math.nan
    return value if math.isfinite(value) and value > 0 else 0.0
