"""Import the timed kernels that come with sitar-lab/NeuSight.

Tables ``scripts/asplos/data/dataset{,_amd}/{train,test}`` have a row for every op and shape that ran on a device: Lee,
Phanishayee and Mahajan, "Forecasting GPU Performance for Deep Learning Training and Inference", ASPLOS 2025. Licensed
under MIT by Georgia Tech and Microsoft. Rows of ``train`` have small random shapes, rows of ``test`` the large ones of
real networks; ``source_file`` tells them apart.

What ran, by the repository's own script of the collection: without gradients, in fp32 with TF32 off, 25 runs between
two events each, of which the 5 fastest were averaged (so the launch of an op is part of its time, and its operands may
lie in the cache). ``bmm`` multiplies (B, M, N) by (B, N, K): N is what is summed over. ``linear`` has a bias, input
(B, M, N) and output (B, M, K); the tables agree, as every row with N = 1, and every row of an AMD card, lists a kernel
that copies it. ``conv`` has none, and square kernels and images. ``ln`` (with weight and bias), ``softmax`` and the
elementwise ops ran along H on (B, H), the latter on two tensors of that shape, or, where the name ends in ``u``, on
one and a number between 0 and 1. GELU is the exact one. All but ``bmm`` and ``linear`` ran on zeros.
"""

from __future__ import annotations

import re
import string
from pathlib import Path

import numpy as np
import pandas as pd

from data_collection.imports import Import, check_limit, drawn
from data_collection.neusight_results import DEVICES, SOURCE
from gnnperf.records import Record

# Of every op, its zoo name with columns in braces; the batch is column B.
OPS = {
    "bmm": "layer:matmul,rows={M},depth={N},columns={K}",
    "linear": "layer:linear,features_in={N},features_out={K},rows={M},bias",
    "conv": "layer:conv2d,channels_in={Input_Channel},channels_out={Output_Channel},kernel={Kernel_Szie}"
    ",stride={Stride},padding={Padding}",
    "ln": "layer:layer_norm,features={H}",
    "softmax": "layer:softmax,features={H}",
    **{op: f"layer:{op},features={{H}}" for op in ("add", "mul", "div", "pow", "relu", "gelu", "tanh")},
    **{f"{op}u": f"layer:{op},features={{H}},scalar" for op in ("add", "mul", "div", "pow")},
}
_IMAGE_SIZES = {"conv": "Input_Size"}
_VERSION = re.compile(r"p(\d+\.\d+)(\.\d+)?")


def import_neusight_kernels(clone: str | Path, limit_per_file: int | None = None, seed: int = 0) -> Import:
    """Read all kernels, or of each file a random sample.

    Args:
        clone: Folder of a clone of NeuSight, or any folder with its ``scripts/asplos/data``.
        limit_per_file: Most rows to take of a file; all by default. The rest is counted as left out.
        seed: Of the sample; what is drawn of one file does not depend on the others.

    Raises:
        ValueError: If there are no such files, one is damaged, or the limit is not positive.
    """
    check_limit(limit_per_file)
    folder = Path(clone) / "scripts" / "asplos" / "data"
    files = [path for dataset in sorted(folder.glob("dataset*")) for path in _files(dataset)]
    if not files:
        raise ValueError(
            f"no scripts/asplos/data/dataset*/train/collect/*/*/*.csv in {str(clone)!r}: give the folder of a clone of "
            "https://github.com/sitar-lab/NeuSight"
        )
    result = Import()
    for path in files:
        _import_file(path, str(path.relative_to(clone)), limit_per_file, seed, result)
    return result


def _files(dataset: Path) -> list[Path]:
    """The tables of a data set; where the test rows were merged into one table by kind of op, only those."""
    merged = sorted((dataset / "test").glob("*.csv"))
    parts = ("train",) if merged else ("train", "test")
    return [*merged, *sorted(path for part in parts for path in (dataset / part / "collect").glob("*/*/*.csv"))]


def _import_file(path: Path, source_file: str, limit: int | None, seed: int, result: Import) -> None:
    rows = _read(path, source_file)
    reasons = {
        "no measurement": ~(np.isfinite(rows.Latency) & (rows.Latency > 0)),
        "device not known": rows.device.isna(),
        "op not known": ~rows.OPName.isin(OPS.keys()),
        "torch version not known": rows.version.isna(),
    }
    kept = pd.Series(True, rows.index)
    for reason, wrong in reasons.items():
        if count := int((kept & wrong).sum()):
            result.skipped[reason] += count
        kept &= ~wrong
    rows = drawn(rows[kept], limit, seed, result)
    for op, group in rows.groupby("OPName", sort=False):
        result.records += _records(str(op), group, source_file)


def _read(path: Path, source_file: str) -> pd.DataFrame:
    """The table, with the line, catalogue id and torch version of every row."""
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:  # what pandas raises of damaged text is a ValueError
        raise ValueError(f"{source_file}: not a table ({' '.join(str(error).split())})") from error
    if missing := {"OPName", "Latency", "Device", "B"} - set(rows.columns):
        raise ValueError(f"{source_file}: not a table of timed kernels (it lacks {', '.join(sorted(missing))})")
    # The tables of the AMD cards say the version in the name of their folder alone.
    versions = rows["Torch Version"] if "Torch Version" in rows else pd.Series(path.parent.name, rows.index)
    return rows.assign(
        Latency=pd.to_numeric(rows.Latency, errors="coerce"),
        line=np.arange(2, len(rows) + 2),
        device=rows.Device.astype(str).str.replace(" ", "_").map(DEVICES),
        version=versions.astype(str).map(_version),
    )


def _version(text: str) -> str | None:
    """``p2.1.0`` is 2.1."""
    parsed = _VERSION.fullmatch(text)
    return parsed[1] if parsed else None


def _records(op: str, rows: pd.DataFrame, source_file: str) -> list[Record]:
    template = OPS[op]
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field]
    names = ["B", *fields, *filter(None, [_IMAGE_SIZES.get(op)])]
    sizes = _sizes(source_file, rows, names)
    columns = (rows.line, rows.device, rows.version, rows.Latency)
    return [
        Record(
            source=SOURCE,
            source_file=source_file,
            source_line=line,
            network=template.format_map(size),
            family=template.removeprefix("layer:").partition(",")[0],
            device=device,
            framework="torch",
            version=version,
            compiled=False,
            memory_format="channels_first",
            mode="inference",
            precision="fp32",
            batch_size=size["B"],
            image_size=size.get(_IMAGE_SIZES.get(op, ""), 0),
            time_ms=time_ms,
            label="forward of one op",
        )
        for size, line, device, version, time_ms in zip(sizes, *(c.tolist() for c in columns), strict=True)
    ]


def _sizes(source_file: str, rows: pd.DataFrame, names: list[str]) -> list[dict[str, int]]:
    """The sizes of every row by column."""
    if missing := set(names) - set(rows.columns):
        raise ValueError(f"{source_file}: not a table of timed kernels (it lacks {', '.join(sorted(missing))})")
    values = rows[names].apply(pd.to_numeric, errors="coerce")
    least = np.array([0 if name == "Padding" else 1 for name in names])
    wrong = ~((values >= least) & (values % 1 == 0)).all(axis=1)
    if wrong.any():
        line = rows.line[wrong].iloc[0]
        raise ValueError(f"{source_file}:{line}: the sizes {', '.join(names)} must be whole numbers of at least 1")
    return values.astype("int64").to_dict("records")
