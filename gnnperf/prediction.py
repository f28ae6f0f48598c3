"""From a graph and devices to times, node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from gnnperf.cost.registry import node_cost, unknown_ops
from gnnperf.features import device_features, device_rates, graph_data, software_features
from gnnperf.graph import ComputationGraph
from gnnperf.hardware import Device, Software, device_ids, load_device
from gnnperf.memory import largest_batch_size, memory_parts_bytes
from gnnperf.model import Rows
from gnnperf.weights import LoadedModel, load_weights

if TYPE_CHECKING:
    import pandas as pd

OVERHEAD = "(overhead)"
NODE_COLUMNS = ("node", "module", "op", "phase", "output_shape", "flops", "bytes", "time_ms")

AnyDevice = str | Path | Device

# Tensors of graphs that are still in use, by identity: another device or software needs no second conversion.
_tensors: WeakIdKeyDictionary = WeakIdKeyDictionary()


@dataclass(frozen=True, eq=False)
class Prediction:
    """How long a network takes on a device, and where the time goes.

    Attributes:
        graph: The network.
        device: The device.
        software: What runs it.
        total_ms: Milliseconds of one pass: all nodes and the overhead.
        interval_ms: Low and high bound, 90 %.
        overhead_ms: What the nodes do not explain, such as launch gaps; negative where work overlaps.
        node_times_ms: (nodes,) float64, milliseconds of every node in the graph's order.
        peak_memory_bytes: The most memory that the network holds at once.
        unknown_ops: Ops without a cost rule, priced by their bytes alone, and how often each occurs.
        zero_shot: Whether no measurement of this device was in training.
        warnings: What the user should know before trusting the numbers.
    """

    graph: ComputationGraph = field(repr=False)
    device: Device
    software: Software
    total_ms: float
    interval_ms: tuple[float, float]
    overhead_ms: float
    node_times_ms: np.ndarray = field(repr=False)
    peak_memory_bytes: int
    unknown_ops: dict[str, int]
    zero_shot: bool
    warnings: tuple[str, ...]

    @property
    def samples_per_s(self) -> float:
        """Samples of the batch per second."""
        return 1e3 * self.graph.batch_size / self.total_ms

    @property
    def fits(self) -> bool:
        """Whether the device has as much memory as the network needs."""
        return self.peak_memory_bytes <= self.device.memory_bytes

    @cached_property
    def max_batch_size(self) -> int:
        """The largest batch that fits the device; 0 if not even one does.

        Raises:
            ValueError: If the graph cannot be rescaled.
        """
        return largest_batch_size(self.graph, self.device, self.software)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """A row for every node in execution order and a last one, ``(overhead)``; ``time_ms`` adds up to ``total_ms``.

        Columns: node, module, op, phase, output_shape (tuple, of the first result), flops, bytes (read and written),
        time_ms.
        """
        import pandas as pd

        graph_nodes = self.graph.nodes
        costs = [node_cost(node, self.software.attention) for node in graph_nodes]
        shapes = [node.outputs[0].shape if node.outputs else () for node in graph_nodes]
        columns = {
            "node": [*(node.name for node in graph_nodes), OVERHEAD],
            "module": [*(node.module for node in graph_nodes), ""],
            "op": [*(node.op for node in graph_nodes), OVERHEAD],
            "phase": [*(node.phase for node in graph_nodes), ""],
            "output_shape": [*shapes, ()],
            "flops": [*(cost.flops for cost in costs), 0.0],
            "bytes": [*(cost.bytes for cost in costs), 0.0],
            "time_ms": [*self.node_times_ms.tolist(), self.overhead_ms],
        }
        return pd.DataFrame({name: columns[name] for name in NODE_COLUMNS})


@overload
def predict(  # type: ignore[overload-overlap]
    graph: ComputationGraph,
    device: AnyDevice,
    software: Software | None = None,
    *,
    weights: LoadedModel | str | Path | None = None,
) -> Prediction: ...


@overload
def predict(
    graph: ComputationGraph,
    device: Sequence[AnyDevice],
    software: Software | None = None,
    *,
    weights: LoadedModel | str | Path | None = None,
) -> list[Prediction]: ...


def predict(
    graph: ComputationGraph,
    device: AnyDevice | Sequence[AnyDevice],
    software: Software | None = None,
    *,
    weights: LoadedModel | str | Path | None = None,
) -> Prediction | list[Prediction]:
    """Predict the time of ``graph`` on one device or on several.

    Args:
        graph: From ``gnnperf.capture``, ``gnnperf.load`` or ``gnnperf.zoo``.
        device: An id of the catalogue, a file with a spec sheet, a ``Device``, or a list of those.
        software: What runs the network; by default a present torch, eager.
        weights: A trained model or its folder; by default the one that gnnperf carries.

    Returns:
        A prediction, or for a list of devices a list in the same order.

    Raises:
        ValueError: If an argument is wrong, a device is not known, or there are no weights.
    """
    if not isinstance(graph, ComputationGraph):
        what = type(graph).__name__
        raise ValueError(f"predict takes a graph from gnnperf.capture, gnnperf.load or gnnperf.zoo, not {what}")
    if software is not None and not isinstance(software, Software):
        raise ValueError(f"software must be a gnnperf.Software, not {type(software).__name__}")
    several = isinstance(device, Sequence) and not isinstance(device, str)
    devices = [load_device(d) for d in device] if several else [load_device(device)]  # type: ignore[arg-type, union-attr]
    loaded = weights if isinstance(weights, LoadedModel) else load_weights(weights)
    predictions = _predict(graph, devices, software or Software(), loaded) if devices else []
    return predictions if several else predictions[0]


def _predict(
    graph: ComputationGraph, devices: Sequence[Device], software: Software, loaded: LoadedModel
) -> list[Prediction]:
    data = _data(graph)
    with torch.no_grad():
        states = loaded.model.encode(data)
        times = loaded.model.predict(states, data, _rows(devices, software))
    class_ms = times.node_ms.double().view(len(devices), -1)
    node_ms = class_ms[:, data.node_class].numpy()
    overhead_ms = times.overhead_ms.double().tolist()
    common = _unmeasured(graph, loaded)
    return [
        _prediction(graph, *one, software, loaded, common) for one in zip(devices, node_ms, overhead_ms, strict=True)
    ]


def _prediction(
    graph: ComputationGraph,
    device: Device,
    node_ms: np.ndarray,
    overhead_ms: float,
    software: Software,
    loaded: LoadedModel,
    common: list[str],
) -> Prediction:
    total_ms = math.fsum(node_ms) + overhead_ms
    if not 0 < total_ms < math.inf:
        raise ValueError(
            f"no time can be predicted for {graph.name!r} on {device.id!r} ({total_ms} ms): its ops neither compute "
            "nor move anything, or the device is far from all that the model has seen"
        )
    zero_shot = not _in_training(device, loaded)
    low, high = loaded.interval_log_ratio(zero_shot)
    parts = memory_parts_bytes(graph, device, software)
    peak_bytes = sum(parts.values())
    unknown = unknown_ops(graph)
    warnings = [*graph.warnings, *_unknown(unknown), *common]
    if peak_bytes > device.memory_bytes:
        warnings.append(f"{device.id}: {_does_not_fit(parts, device.memory_bytes)}")
    return Prediction(
        graph=graph,
        device=device,
        software=software,
        total_ms=total_ms,
        interval_ms=(total_ms * math.exp(low), total_ms * math.exp(high)),
        overhead_ms=overhead_ms,
        node_times_ms=node_ms,
        peak_memory_bytes=peak_bytes,
        unknown_ops=unknown,
        zero_shot=zero_shot,
        warnings=tuple(warnings),
    )


def _does_not_fit(parts: dict[str, int], present_bytes: int) -> str:
    needed_bytes = sum(parts.values())
    largest = sorted(((size, name) for name, size in parts.items()), reverse=True)
    room = ", ".join(f"{name} {size / 2**30:.1f}" for size, name in largest if size > 0.01 * needed_bytes)
    numbers = [f"{size / 2**30:.1f} GiB" for size in (needed_bytes, present_bytes, needed_bytes - present_bytes)]
    return f"it needs {numbers[0]} of memory, the device has {numbers[1]}, so {numbers[2]} are missing ({room})"


def _data(graph: ComputationGraph) -> Data:
    data = _tensors.get(graph)
    if data is None:
        data = _tensors[graph] = graph_data(graph)
    return data


def _rows(devices: Sequence[Device], software: Software) -> Rows:
    """A row for every device, all of the one graph."""
    count = len(devices)
    return Rows(
        graph=torch.zeros(count, dtype=torch.long),
        device=torch.stack([device_features(device) for device in devices]),
        rates=torch.stack([device_rates(device) for device in devices]),
        software=software_features(software).expand(count, -1),
        decomposed=torch.full((count,), software.attention == "decomposed"),
    )


def _in_training(device: Device, loaded: LoadedModel) -> bool:
    """Whether the model saw measurements of this very device; a user's file may carry the id of another one."""
    known = device.id in loaded.training_devices and device.id in device_ids()
    return known and load_device(device.id) == device


def _unknown(unknown: dict[str, int]) -> list[str]:
    if not unknown:
        return []
    names = ", ".join(f"{op} ({count})" for op, count in sorted(unknown.items()))
    return [f"ops without a cost rule are priced by their bytes alone: {names}"]


def _unmeasured(graph: ComputationGraph, loaded: LoadedModel) -> list[str]:
    """Warnings that name the mode, and the ops with a cost rule, that no network in training had."""
    warnings = []
    if loaded.training_modes and graph.mode not in loaded.training_modes:
        warnings.append(
            f"no measurement of {graph.mode} was learned from: what it runs besides known ops rests on physics"
        )
    if loaded.training_ops:
        used = {node.op.removesuffix("_backward") for node in graph.nodes if node.phase != "optimizer"}
        if names := sorted(used - loaded.training_ops - unknown_ops(graph).keys()):
            warnings.append(f"no measured network had these ops, so their times rest on physics: {', '.join(names)}")
    return warnings
