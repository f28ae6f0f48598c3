"""A whole graph on a device as one row of numbers, for predictors that know no nodes."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from torch_geometric.data import Data

from gnnperf.cost.registry import OP_CLASSES
from gnnperf.dataset import Dataset, Sample
from gnnperf.features import (
    COST_COLUMNS,
    DEVICE_FEATURES,
    NODE_FEATURES,
    OPS,
    SIZE_COLUMNS,
    SOFTWARE_FEATURES,
    device_features,
    device_rates,
    software_features,
)
from gnnperf.graph import PRECISIONS as GRAPH_PRECISIONS
from gnnperf.hardware import PRECISIONS, load_device
from gnnperf.metrics import Array

# Ops whose count tells networks apart; the others are summed by class only.
COUNTED_OPS = """add attention avg_pool batch_norm cast concat conv copy gelu group_norm hardswish layer_norm
    linear matmul max_pool mul pad reduce_mean relu resize sigmoid silu softmax""".split()
TOTALS = """log_roofline_ms log_flops log_bytes log_written_bytes log_parameter_bytes log_intensity log_kernels
    launch_share log_largest_ms largest_share matrix_share aligned_share log_classes log_batch image_size
    graph_precision log_flops_a_sample""".split()
PARTS = ("depthwise", "grouped", "pointwise", "other_conv")
AGGREGATES = (
    *TOTALS,
    *(f"{name}_{what}" for name in OP_CLASSES for what in ("count", "log_flops", "log_bytes", "share")),
    *(f"{name}_{what}" for name in PARTS for what in ("count", "share")),
    *(f"count_{op}" for op in COUNTED_OPS),
    *(f"device_{name}" for name in DEVICE_FEATURES),
    *(f"software_{name}" for name in SOFTWARE_FEATURES),
)
_BANDWIDTH, _LAUNCH = 2 * len(PRECISIONS), 2 * len(PRECISIONS) + 1


class NodeTable:
    """Columns of a graph with one value for each class of equal nodes, (C,).

    Attributes:
        count: Nodes in the class.
        flops: Of one of them, like all that follows.
        bytes: Read and written.
        written_bytes: Of activations.
        parameter_bytes: Of weights.
        kernels: Launches.
    """

    def __init__(self, data: Data, decomposed: bool) -> None:
        cost = data.cost[:, int(decomposed)].numpy()
        self.count: Array = data.count.numpy().astype(np.float64)
        self.flops: Array = cost[:, COST_COLUMNS.index("flops")]
        self.written_bytes: Array = cost[:, COST_COLUMNS.index("bytes_written")]
        self.bytes: Array = cost[:, COST_COLUMNS.index("bytes_read")] + self.written_bytes
        self.kernels: Array = cost[:, COST_COLUMNS.index("kernels")]
        self.parameter_bytes: Array = data.sizes[:, SIZE_COLUMNS.index("parameter_bytes")].numpy().astype(np.float64)


def node_table(dataset: Dataset, sample: Sample) -> NodeTable:
    """The columns of a sample's graph, with attention as the sample's software runs it."""
    return NodeTable(dataset.graphs[sample.graph], sample.record.software.attention == "decomposed")


def class_rooflines_ms(dataset: Dataset, sample: Sample) -> Array:
    """Milliseconds of each class of nodes, (C,): nodes times the longer of computing and moving bytes; no launches."""
    data, table = dataset.graphs[sample.graph], node_table(dataset, sample)
    rates = _rates(sample.record.device)
    rate = rates[data.precision.numpy() + len(PRECISIONS) * data.matrix.numpy()]
    return 1e3 * table.count * np.maximum(table.flops / rate, table.bytes / rates[_BANDWIDTH])


@cache
def _rates(device: str) -> Array:
    return device_rates(load_device(device)).numpy()


@cache
def _device(device: str) -> Array:
    return device_features(load_device(device)).numpy().astype(np.float64)


def aggregate(dataset: Dataset, sample: Sample) -> Array:
    """(``AGGREGATES``,): totals, sums by op class and kind of convolution, counts of ops, device and software."""
    data, table = dataset.graphs[sample.graph], node_table(dataset, sample)
    ms = class_rooflines_ms(dataset, sample)
    share = ms / max(ms.sum(), 1e-12)
    op_class, op = data.op_class.numpy(), data.op.numpy()
    sums = np.zeros((len(OP_CLASSES), 4))
    flops, moved = table.count * table.flops, table.count * table.bytes
    np.add.at(sums, op_class, np.stack([table.count, flops, moved, share], axis=1))
    sums[:, 1:3] = np.log1p(sums[:, 1:3])
    counts = np.bincount(op, weights=table.count, minlength=len(OPS))
    parts = [value for chosen in _parts(data) for value in (table.count[chosen].sum(), share[chosen].sum())]
    return np.concatenate(
        [
            _totals(data, table, ms, sample),
            sums.ravel(),
            parts,
            counts[[OPS.index(name) for name in COUNTED_OPS]],
            _device(sample.record.device),
            software_features(sample.record.software).numpy(),
        ]
    )


def _column(data: Data, name: str) -> Array:
    return data.x[:, NODE_FEATURES.index(name)].numpy().astype(np.float64)


def _parts(data: Data) -> list[npt.NDArray[np.bool_]]:
    """Which classes of nodes are convolutions of each of ``PARTS``."""
    conv = data.op.numpy() == OPS.index("conv")
    depthwise, grouped = _column(data, "depthwise") > 0, _column(data, "grouped") > 0
    pointwise = _column(data, "log_window") <= _column(data, "log_window").min()
    dense = conv & ~depthwise & ~grouped
    return [conv & depthwise, conv & grouped, dense & pointwise, dense & ~pointwise]


def _totals(data: Data, table: NodeTable, ms: Array, sample: Sample) -> list[float]:
    record = sample.record
    total_ms = max(float(ms.sum()), 1e-12)
    flops = float(table.count @ table.flops)
    moved = float(table.count @ table.bytes)
    kernels = float(table.count @ table.kernels)
    matrix = data.matrix.numpy()
    aligned = matrix & (_column(data, "columns_of_8") > 0) & (_column(data, "depth_of_8") > 0)
    values = {
        "log_roofline_ms": np.log(total_ms),
        "log_flops": np.log1p(flops),
        "log_bytes": np.log1p(moved),
        "log_written_bytes": np.log1p(table.count @ table.written_bytes),
        "log_parameter_bytes": np.log1p(table.count @ table.parameter_bytes),
        "log_intensity": np.log((flops + 1) / (moved + 1)),
        "log_kernels": np.log1p(kernels),
        "launch_share": kernels * _rates(record.device)[_LAUNCH] / total_ms,
        "log_largest_ms": np.log(max(float((ms / table.count).max()), 1e-12)),
        "largest_share": float(ms.max()) / total_ms,
        "matrix_share": ms[matrix].sum() / total_ms,
        "aligned_share": ms[aligned].sum() / max(float(ms[matrix].sum()), 1e-12),
        "log_classes": np.log1p(len(ms)),
        "log_batch": np.log(record.batch_size),
        "image_size": record.image_size,
        "graph_precision": GRAPH_PRECISIONS.index(record.precision),
        "log_flops_a_sample": np.log1p(flops / record.batch_size),
    }
    return [float(values[name]) for name in TOTALS]
