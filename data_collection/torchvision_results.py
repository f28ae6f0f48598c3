"""Import the runs of torchvision networks that come with ryujaehun/pytorch-gpu-benchmark.

Each file ``results/FOLDER/DEVICE[_N_gpus_]_{half,float,single,double}_model_{inference,train,training}_benchmark.csv``
has a column of samples, in milliseconds, for every network. Licensed under MIT by Jaehun Ryu.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import Counter
from pathlib import Path

from data_collection.imports import Import
from gnnperf.records import Record

SOURCE = "ryujaehun+pytorch-gpu-benchmark"
DEVICES = {
    "GeForce GTX 1080 Ti": "gtx-1080-ti",
    "GeForce RTX 2080 Ti": "rtx-2080-ti",
    "TITAN Xp": "titan-xp",
    "A100-SXM4-40GB": "a100-sxm4-40gb",
}
BATCH_SIZE = 12
IMAGE_SIZE = 224
# The files do not say which torch ran: an A100 needs 1.7, and the networks of the other files exist since 1.2.
VERSION = "1.7"
_PRECISIONS = {"half": "fp16", "float": "fp32", "single": "fp32", "double": "fp64"}
_TENSOR_FLOAT = frozenset({"a100-sxm4-40gb"})  # torch 1.7 let fp32 use tf32 units by default
_FILE_NAME = re.compile(
    r"(?P<device>.+?)(_(?P<gpus>\d+)_gpus_)?_(?P<precision>half|float|single|double)_model"
    r"_(?P<mode>inference|train|training)_benchmark\.csv"
)


def import_torchvision(clone: str | Path) -> Import:
    """Read the runs on one GPU: the median of the samples of each network.

    Args:
        clone: Folder of a clone of pytorch-gpu-benchmark, or any folder with its ``results``.

    Raises:
        ValueError: If there are no result files, or one is damaged.
    """
    files = sorted((Path(clone) / "results").glob("*/*.csv"))
    if not files:
        raise ValueError(
            f"no results/*/*.csv in {str(clone)!r}: give the folder of a clone of "
            "https://github.com/ryujaehun/pytorch-gpu-benchmark"
        )
    records: list[Record] = []
    skipped: Counter[str] = Counter()
    for path in files:
        columns = _columns(path)
        parsed = _FILE_NAME.fullmatch(path.name)
        if parsed is None or parsed["device"] not in DEVICES:
            skipped["file name not understood or device not known"] += len(columns)
        elif int(parsed["gpus"] or 1) > 1:
            skipped["several GPUs"] += len(columns)
        else:
            for network, samples in columns.items():
                if samples:
                    records.append(_record(parsed, f"results/{path.parent.name}/{path.name}", network, samples))
                else:
                    skipped["no measurement"] += 1
    return Import(records, skipped)


def _columns(path: Path) -> dict[str, list[float]]:
    """The samples in ms of every network."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = list(csv.reader(file)) or [[]]
    try:
        values = {
            name: [float(row[number]) for row in rows if len(row) > number and row[number]]
            for number, name in enumerate(names)
        }
    except ValueError as error:
        raise ValueError(f"{path.name}: not a table of milliseconds ({error})") from error
    return {name: [v for v in samples if math.isfinite(v) and v > 0] for name, samples in values.items() if name}


def _record(parsed: re.Match[str], source_file: str, network: str, samples: list[float]) -> Record:
    device, precision = DEVICES[parsed["device"]], _PRECISIONS[parsed["precision"]]
    if precision == "fp32" and device in _TENSOR_FLOAT:
        precision = "tf32"
    inference = parsed["mode"] == "inference"
    return Record(
        source=SOURCE,
        source_file=source_file,
        source_line=1,
        network=f"torchvision:{network}",
        family=re.match(r"[a-z]+(?:_v2)?", network)[0],  # type: ignore[index]
        device=device,
        framework="torch",
        version=VERSION,
        compiled=False,
        memory_format="channels_first",
        mode="inference" if inference else "training",
        precision=precision,
        batch_size=BATCH_SIZE,
        image_size=IMAGE_SIZE,
        time_ms=statistics.median(samples),
        label="copy to the GPU, forward" if inference else "copy to the GPU, forward, loss, backward",
    )
