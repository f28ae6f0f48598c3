"""Import the timed layers that come with CDECatapult/ml-performance-prediction.

Each file ``prediction_model/data/Data_{convolution,dense}_DEVICE.parquet`` has a row for every layer of random sizes
that TensorFlow ran: Justus, Brennan, Bonner and McGough, "Predicting the Computational Cost of Deep Learning Models",
IEEE Big Data 2018. Licensed under Apache-2.0.

What the columns mean, as arithmetic on all rows shows. ``matsize`` is the side of the input, ``padding`` 1 is SAME and
0 is VALID: ``memory_out`` holds ``batch * channels_out * side**2`` values, where ``side`` is ``matsize / strides`` and
``(matsize - kernelsize + 1) / strides``, neither of them rounded up as TensorFlow does. ``memory_in`` and
``memory_weights`` count values too; that of dense layers counts no bias, so that none is assumed.

``opt_None`` is the forward pass of the layer and its activation. Any other row is a training step. No text comes with
the files that says what was trained, but the times tell: over layers with few weights, the optimizers differ by the
same passes over the values of the *input*, and over those of the *output*, as they do over the weights elsewhere (on
the GTX 1080 Ti, over SGD and at the nominal bandwidth: momentum 4-5, Adagrad 6-7, RMSProp 10, Adadelta 13 passes), and
a multiply-add costs three to four times what it does in a forward pass. So the input was a variable, and so was a
target of the output's shape, and both were updated like the weights (``trained_data`` of ``gnnperf.networks.layers``):
with that the rooflines of convolutions fall short by about the same factor under all six optimizers, without it by
three times as much under some. That the loss was the mean squared difference of output and target is assumed; and so
are images as channels last, TensorFlow's default, which the passes over input and output of a forward convolution fit
(cuDNN wanted them transposed).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from data_collection.imports import Import, check_limit, drawn
from gnnperf.records import Record

SOURCE = "CDECatapult+ml-performance-prediction"
# Which P100 and V100 it was is not said: the cards for PCIe are assumed.
DEVICES = {
    "1080ti": "gtx-1080-ti",
    "k40": "k40",
    "k80": "k80",
    "p100": "p100-pcie-16gb",
    "v100": "v100-pcie-16gb",
}
VERSION = "1.10"  # assumed: the files are of 2018, when TensorFlow went from 1.5 to 1.12
_PRECISION_BITS = 32
_FILE_NAME = re.compile(r"Data_(?P<kind>convolution|dense)_(?P<device>\w+)\.parquet")
_OPTIMIZERS = ("None", "SGD", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam")
_ACTIVATIONS = ("None", "relu", "sigmoid", "tanh")
_SIZES = {
    "convolution": ("matsize", "channels_in", "channels_out", "kernelsize", "strides", "padding", "use_bias"),
    "dense": ("dim_input", "dim_output"),
}
_SHARED = ("batchsize", "precision", "timeUsed_median")


def import_justus(clone: str | Path, limit_per_file: int | None = None, seed: int = 0) -> Import:
    """Read all layers, or of each file a random sample.

    Args:
        clone: Folder of a clone of ml-performance-prediction, or any folder with its ``prediction_model/data``.
        limit_per_file: Most rows to take of a file; all by default. The rest is counted as left out.
        seed: Of the sample; what is drawn of one file does not depend on the others.

    Raises:
        ValueError: If there are no such files, one is damaged, or the limit is not positive.
    """
    check_limit(limit_per_file)
    files = sorted((Path(clone) / "prediction_model" / "data").glob("*.parquet"))
    if not files:
        raise ValueError(
            f"no prediction_model/data/*.parquet in {str(clone)!r}: give the folder of a clone of "
            "https://github.com/CDECatapult/ml-performance-prediction"
        )
    result = Import()
    for path in files:
        _import_file(path, limit_per_file, seed, result)
    return result


def _import_file(path: Path, limit: int | None, seed: int, result: Import) -> None:
    rows = _read(path)
    parsed = _FILE_NAME.fullmatch(path.name)
    if parsed is None or parsed["device"].lower() not in DEVICES:
        result.skipped["file name not understood or device not known"] += len(rows)
        return
    kind = parsed["kind"]
    if missing := {*_SIZES[kind], *_SHARED} - set(rows.columns):
        raise ValueError(f"{path.name}: not a table of timed layers (it lacks {', '.join(sorted(missing))})")
    if not rows[[name for name in _SIZES[kind] if name in ("padding", "use_bias")]].isin((0, 1)).all(axis=None):
        raise ValueError(f"{path.name}: padding and use_bias must be 0 or 1")
    rows = rows.assign(
        line=np.arange(1, len(rows) + 1),
        optimizer=_chosen(path, rows, "opt", _OPTIMIZERS),
        activation=_chosen(path, rows, "act", _ACTIVATIONS),
    )
    timed = np.isfinite(rows.timeUsed_median) & (rows.timeUsed_median > 0)
    single = rows.precision == _PRECISION_BITS
    for reason, count in (
        ("no measurement", (~timed).sum()),
        ("precision other than 32 bits", (timed & ~single).sum()),
    ):
        if count:
            result.skipped[reason] += int(count)
    rows = drawn(rows[timed & single], limit, seed, result)
    result.records += _records(kind, DEVICES[parsed["device"].lower()], f"prediction_model/data/{path.name}", rows)


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{path.name}: not a Parquet file ({str(error).splitlines()[0]})") from error


def _chosen(path: Path, rows: pd.DataFrame, prefix: str, names: tuple[str, ...]) -> np.ndarray:
    """Of columns that flag one choice each, the name that every row has set, in lower case; empty for ``None``."""
    columns = [f"{prefix}_{name}" for name in names]
    if not set(columns) <= set(rows.columns):
        raise ValueError(f"{path.name}: not a table of timed layers (it lacks some of {', '.join(columns)})")
    flags = rows[columns].to_numpy(dtype=bool)
    if not (flags.sum(axis=1) == 1).all():
        raise ValueError(f"{path.name}: a row has not exactly one of {', '.join(columns)}")
    return np.array(["" if name == "None" else name.lower() for name in names])[flags.argmax(axis=1)]


def _records(kind: str, device: str, source_file: str, rows: pd.DataFrame) -> list[Record]:
    convolution = kind == "convolution"
    names = _convolutions(rows) if convolution else _dense_layers(rows)
    sides = rows.matsize if convolution else pd.Series(0, rows.index)
    columns = (rows.line, names, rows.optimizer, rows.batchsize, sides, rows.timeUsed_median)
    return [
        Record(
            source=SOURCE,
            source_file=source_file,
            source_line=line,
            network=name,
            family="conv2d" if convolution else "linear",
            device=device,
            framework="tensorflow",
            version=VERSION,
            compiled=False,
            memory_format="channels_last" if convolution else "channels_first",
            mode="training" if optimizer else "inference",
            precision="fp32",
            batch_size=batch_size,
            image_size=side,
            time_ms=time_ms,
            label=f"forward, loss, backward, {optimizer} update of weights and data" if optimizer else "forward",
            optimizer=optimizer,
        )
        for line, name, optimizer, batch_size, side, time_ms in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _convolutions(rows: pd.DataFrame) -> pd.Series:
    """Zoo names; the side of the image is given beside them."""
    return (
        "layer:conv2d,channels_in="
        + rows.channels_in.astype(str)
        + ",channels_out="
        + rows.channels_out.astype(str)
        + ",kernel="
        + rows.kernelsize.astype(str)
        + ",stride="
        + rows.strides.astype(str)
        + rows.padding.map({0: ",padding=valid", 1: ",padding=same"})
        + rows.use_bias.map({0: "", 1: ",bias"})
        + _flags(rows)
    )


def _dense_layers(rows: pd.DataFrame) -> pd.Series:
    sizes = ",features_out=" + rows.dim_output.astype(str)
    return "layer:linear,features_in=" + rows.dim_input.astype(str) + sizes + _flags(rows)


def _flags(rows: pd.DataFrame) -> pd.Series:
    """Activation and what is trained, as flags of a zoo name."""
    activation = rows.activation.where(rows.activation == "", "," + rows.activation)
    return activation + (rows.optimizer != "").map({True: ",trained_data", False: ""})
