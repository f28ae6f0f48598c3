"""Import the latencies of NAS-Bench-201 cells that come with HayeonLee/HELP.

Each file ``data/nasbench201/latency/DEVICE[_BATCH].pt`` is a list of a number for each of the 15,625 cells, in the
order of ``data/nasbench201/str_arch2idx.pt``: Lee, Lee, Chong and Hwang, "HELP: Hardware-Adaptive Efficient Latency
Prediction for NAS via Meta-Learning", NeurIPS 2021. Licensed under MIT by its authors.

Only the ranks of the cells on one device are to be trusted, and records say so in their label. The repository takes all
numbers for milliseconds, but no text says how each file was made, and it learns from numbers normalized by device. On
the GPUs, batches 1 and 32 take equally long, so that what was timed there is the host. ``pixel2``, ``samsung_a50``,
``samsung_s7`` and ``essential_ph_1`` hold whole milliseconds and so have ties; so has ``eyeriss``, with 38 different
numbers. ``eyeriss`` and ``pixel3`` are those of HW-NAS-Bench (Li et al., ICLR 2021), the one estimated by a model of
the accelerator, the other measured; on ``pixel3``, cells that lead nowhere take some microseconds.

What is assumed, since no file says it: fp32, images of 32 x 32 as for CIFAR-10, torch 1.8 (of the repository's
installation notes) on GPUs and server CPUs, TensorFlow on phones and on the accelerator; a batch of 1 where the name
of the file ends in none (256 images in the time of ``gold_6226`` would need several times its peak rate).
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from data_collection.imports import Import, check_limit, drawn
from gnnperf.networks.nasbench201 import IMAGE_SIZE
from gnnperf.records import Record

SOURCE = "HayeonLee+HELP"
LABEL = "forward; the scale is not reliable: ranks only"
_TORCH = ("torch", "1.8")
_TENSORFLOW = ("tensorflow", "2.4")
# Of every name, the catalogue id and what is assumed to have run there.
DEVICES = {
    "1080ti": ("gtx-1080-ti", *_TORCH),
    "2080ti": ("rtx-2080-ti", *_TORCH),
    "titanx": ("titan-x-pascal", *_TORCH),
    "titanxp": ("titan-xp", *_TORCH),
    "titan_rtx": ("titan-rtx", *_TORCH),
    "gold_6226": ("xeon-gold-6226", *_TORCH),
    "gold_6240": ("xeon-gold-6240", *_TORCH),
    "silver_4114": ("xeon-silver-4114", *_TORCH),
    "silver_4210r": ("xeon-silver-4210r", *_TORCH),
    "pixel2": ("pixel-2", *_TENSORFLOW),
    "pixel3": ("pixel-3", *_TENSORFLOW),
    "samsung_a50": ("samsung-galaxy-a50", *_TENSORFLOW),
    "samsung_s7": ("samsung-galaxy-s7", *_TENSORFLOW),
    "essential_ph_1": ("essential-ph-1", *_TENSORFLOW),
    "eyeriss": ("eyeriss", *_TENSORFLOW),
}
# A batch follows the names of GPUs only: ``essential_ph_1`` is a name.
_FILE_NAME = re.compile(r"(?P<device>\w+?)(_(?P<batch>1|32|256))?")


def import_help(clone: str | Path, limit_per_file: int | None = None, seed: int = 0) -> Import:
    """Read all cells on all devices, or a random sample of cells, the same on every device.

    Args:
        clone: Folder of a clone of HELP, or any folder with its ``data/nasbench201``.
        limit_per_file: Most cells to take of a device's file; all by default. The rest is counted as left out.
        seed: Of the sample.

    Raises:
        ValueError: If there are no such files, one is damaged, or the limit is not positive.
    """
    check_limit(limit_per_file)
    folder = Path(clone) / "data" / "nasbench201"
    files = sorted((folder / "latency").glob("*.pt"))
    if not files:
        raise ValueError(
            f"no data/nasbench201/latency/*.pt in {str(clone)!r}: give the folder of a clone of "
            "https://github.com/HayeonLee/HELP"
        )
    cells = _cells(folder / "str_arch2idx.pt")
    result = Import()
    for path in files:
        _import_file(path, cells, limit_per_file, seed, result)
    return result


def _import_file(path: Path, cells: list[str], limit: int | None, seed: int, result: Import) -> None:
    times_ms = _times_ms(path, len(cells))
    device, batch_size = _device(path.stem)
    if device not in DEVICES:
        result.skipped["device not known"] += len(times_ms)
        return
    rows = pd.DataFrame({"cell": cells, "time_ms": times_ms, "line": range(1, len(cells) + 1)})
    timed = np.isfinite(times_ms) & (times_ms > 0)
    if untimed := int((~timed).sum()):
        result.skipped["no measurement"] += untimed
    rows = drawn(rows[timed], limit, seed, result)
    catalogue_id, framework, version = DEVICES[device]
    result.records += [
        Record(
            source=SOURCE,
            source_file=f"data/nasbench201/latency/{path.name}",
            source_line=line,
            network=f"nasbench201:{cell}",
            family="nasbench201",
            device=catalogue_id,
            framework=framework,
            version=version,
            compiled=False,
            memory_format="channels_first",
            mode="inference",
            precision="fp32",
            batch_size=batch_size,
            image_size=IMAGE_SIZE,
            time_ms=time_ms,
            label=LABEL,
        )
        for cell, time_ms, line in zip(*(rows[name].tolist() for name in ("cell", "time_ms", "line")), strict=True)
    ]


def _device(stem: str) -> tuple[str, int]:
    """The name of the device and the batch size."""
    if stem in DEVICES:
        return stem, 1
    parsed = _FILE_NAME.fullmatch(stem)
    return (parsed["device"], int(parsed["batch"] or 1)) if parsed else (stem, 1)


def _cells(path: Path) -> list[str]:
    """Strings of all cells in the order of the latencies."""
    numbers = _load(path)
    if not isinstance(numbers, dict) or sorted(numbers.values()) != list(range(len(numbers))):
        raise ValueError(f"{path.name}: does not number the cells from 0")
    return sorted(numbers, key=numbers.__getitem__)


def _times_ms(path: Path, count: int) -> np.ndarray:
    values = _load(path)
    try:
        times_ms = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: not a list of numbers ({error})") from error
    if times_ms.shape != (count,):
        raise ValueError(f"{path.name}: not a list of a number for each of {count} cells")
    return times_ms


def _load(path: Path) -> Any:
    """What ``torch.save`` wrote, without running any code that a pickle may hold."""
    try:
        return torch.load(path, weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
        raise ValueError(f"{path.name}: not a file of plain values written by torch ({reason})") from error
