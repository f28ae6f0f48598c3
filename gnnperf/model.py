"""The network: message passing over ops, then a head conditioned on device and software.

It sees tensors only. The trunk knows no device and runs once a graph; the head serves every device from the trunk's
states. A node's time is its roofline on the device times the exponential of what the head says, so that what is never
learned falls back to physics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

PAIR_FEATURES = 16
_TINY_MS = 1e-9


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the network.

    Attributes:
        ops: Entries of the op vocabulary; position 0 is for unknown ops.
        op_classes: Classes of ops.
        precisions: Compute precisions of a node.
        phases: Phases of a step.
        node_features: Width of ``Data.x``.
        edge_features: Width of ``Data.edge_attr``.
        device_features: Width of a device's spec sheet.
        software_features: Width of the software's description.
        width: Width of node states.
        layers: Rounds of message passing; at most ``gnnperf.features.FOLD_DEPTH``. Without any, every node is
            predicted on its own.
        embedding: Width of the device embedding; 0 leaves the device to the roofline alone.
        dropout: Share of states dropped in training.
    """

    ops: int
    op_classes: int
    precisions: int
    phases: int
    node_features: int
    edge_features: int
    device_features: int
    software_features: int
    width: int = 96
    layers: int = 3
    embedding: int = 16
    dropout: float = 0.2

    def to_dict(self) -> dict[str, int | float]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass
class Rows:
    """What is to be predicted: R pairs of a graph of the batch and where it runs.

    Attributes:
        graph: (R,) long, position of the graph in the batch.
        device: (R, device features) float.
        rates: (R, 2 * precisions + 4) float64, see ``gnnperf.features.device_rates``.
        software: (R, software features) float.
        decomposed: (R,) bool, whether attention runs decomposed.
    """

    graph: Tensor
    device: Tensor
    rates: Tensor
    software: Tensor
    decomposed: Tensor


@dataclass
class Times:
    """Predicted times.

    Attributes:
        total_ms: (R,) nodes and overhead.
        overhead_ms: (R,) what the nodes do not explain; negative where work overlaps.
        node_ms: (M,) time of one node of a class on a row.
        row: (M,) the row of each of those.
        node: (M,) the class, as a position in the batch of graphs.
        log_ratio: (M,) logarithm of time over roofline.
    """

    total_ms: Tensor
    overhead_ms: Tensor
    node_ms: Tensor
    row: Tensor
    node: Tensor
    log_ratio: Tensor


class OpConv(MessagePassing):
    r"""One round of messages along tensors, in both directions.

    .. math:: h_v' = h_v + W \, [h_v, \sum_{u \to v} \phi(h_u, e_{uv}), \sum_{v \to w} \psi(h_w, e_{vw})]

    with :math:`\phi` for messages from writers to readers and :math:`\psi` for those from readers to writers.

    Shapes: states (C, width), edges (2, E), edge features (E, edge features), direction (E,).
    """

    def __init__(self, width: int, edge_features: int, dropout: float) -> None:
        super().__init__(aggr="sum")
        self.norm = nn.LayerNorm(width)
        self.source = nn.Linear(width, 2 * width)
        self.edge = nn.Linear(edge_features, 2 * width)
        self.combine = nn.Sequential(
            nn.Linear(3 * width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width)
        )

    def forward(self, states: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_reversed: Tensor) -> Tensor:
        """States after the round."""
        normed = self.norm(states)
        forward, backward = self.source(normed).chunk(2, dim=-1)
        edge_forward, edge_backward = self.edge(edge_attr).chunk(2, dim=-1)
        along, against = ~edge_reversed, edge_reversed
        size = (len(states), len(states))
        received = [
            self.propagate(edge_index[:, chosen], states=source, edge=edge[chosen], size=size)
            for chosen, source, edge in ((along, forward, edge_forward), (against, backward, edge_backward))
        ]
        return states + self.combine(torch.cat([normed, *received], dim=-1))

    def message(self, states_j: Tensor, edge: Tensor) -> Tensor:
        """What an edge carries."""
        return nn.functional.gelu(states_j + edge)


class PerformanceModel(nn.Module):
    """Predicts the time of every node of a graph, and of the whole, on devices given by their spec sheets."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.op = nn.Embedding(config.ops, width)
        self.op_class = nn.Embedding(config.op_classes, width)
        self.precision = nn.Embedding(config.precisions, width)
        self.phase = nn.Embedding(config.phases, width)
        self.node = nn.Linear(config.node_features, width)
        self.rounds = nn.ModuleList(OpConv(width, config.edge_features, config.dropout) for _ in range(config.layers))
        context = config.embedding + config.software_features
        self.device = (
            nn.Sequential(
                nn.Linear(config.device_features, 2 * config.embedding),
                nn.GELU(),
                nn.Linear(2 * config.embedding, config.embedding),
            )
            if config.embedding
            else None
        )
        self.out_norm = nn.LayerNorm(width)
        self.head_node = nn.Linear(width, width)
        self.head_pair = nn.Linear(PAIR_FEATURES, width)
        self.head_context = nn.Linear(context, width)
        self.head = nn.Sequential(
            nn.GELU(), nn.Dropout(config.dropout), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )
        self.overhead = nn.Sequential(nn.Linear(context + 3, 32), nn.GELU(), nn.Linear(32, 2))
        for last in (self.head[-1], self.overhead[-1]):
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def encode(self, data: Data) -> Tensor:
        """States of the C node classes, (C, width); independent of device and software."""
        kind = self.op(data.op) + self.op_class(data.op_class) + self.precision(data.precision) + self.phase(data.phase)
        states = self.node(data.x) + kind
        for layer in self.rounds:
            states = layer(states, data.edge_index, data.edge_attr, data.edge_reversed)
        return self.out_norm(states)

    def forward(self, data: Data, rows: Rows) -> Times:
        """Predict ``rows`` of a batch of graphs (``torch_geometric.data.Batch``, or one ``Data``)."""
        return self.predict(self.encode(data), data, rows)

    def predict(self, states: Tensor, data: Data, rows: Rows) -> Times:
        """Predict from states that ``encode`` gave."""
        row, node = _expand(data, rows)
        roofline_ms, pair, kernels = _rooflines(data, rows, row, node)
        context = self._context(rows)
        hidden = self.head_node(states)[node] + self.head_pair(pair) + self.head_context(context)[row]
        log_ratio = self.head(hidden).squeeze(-1).clamp(-7.0, 5.0)
        node_ms = roofline_ms * log_ratio.exp()
        count = data.count[node]
        size = len(rows.graph)
        nodes_ms = scatter(count * node_ms, row, dim_size=size)
        launches = scatter(count * kernels, row, dim_size=size)
        floor_ms = scatter(count * roofline_ms, row, dim_size=size)
        launch_ms = (launches * rows.rates[:, -3].float()).clamp(min=_TINY_MS)
        gauges = torch.stack([launches.log1p() / 10, (nodes_ms / launch_ms).log(), (nodes_ms / floor_ms).log()], dim=-1)
        overlap, gaps = self.overhead(torch.cat([context, gauges.detach()], dim=-1)).unbind(dim=-1)
        # Both start at zero, where neither is flat.
        launches_lost = nn.functional.softplus(gaps) - math.log(2)
        overhead_ms = 0.3 * torch.tanh(overlap) * nodes_ms + launches_lost * launch_ms
        return Times(nodes_ms + overhead_ms, overhead_ms, node_ms, row, node, log_ratio)

    def _context(self, rows: Rows) -> Tensor:
        if self.device is None:
            return rows.software
        return torch.cat([self.device(rows.device), rows.software], dim=-1)


class Ensemble(nn.Module):
    """Models of one configuration that were trained from different seeds; it predicts the mean of their times.

    Families of networks that nobody measured are where they differ, and where their mean is better than any of them.

    Args:
        members: At least one.
    """

    def __init__(self, members: Sequence[PerformanceModel]) -> None:
        super().__init__()
        self.config = members[0].config
        self.members = nn.ModuleList(members)

    def encode(self, data: Data) -> Tensor:
        """States of every member, (members, C, width)."""
        return torch.stack([member.encode(data) for member in self._models])

    def forward(self, data: Data, rows: Rows) -> Times:
        """As ``PerformanceModel.forward``."""
        return self.predict(self.encode(data), data, rows)

    def predict(self, states: Tensor, data: Data, rows: Rows) -> Times:
        """Predict from states that ``encode`` gave."""
        times = [member.predict(own, data, rows) for member, own in zip(self._models, states, strict=True)]

        def mean(name: str) -> Tensor:
            return torch.stack([getattr(t, name) for t in times]).mean(dim=0)

        return Times(
            total_ms=mean("total_ms"),
            overhead_ms=mean("overhead_ms"),
            node_ms=mean("node_ms"),
            row=times[0].row,
            node=times[0].node,
            log_ratio=mean("log_ratio"),
        )

    @property
    def _models(self) -> list[PerformanceModel]:
        return [member for member in self.members if isinstance(member, PerformanceModel)]


def _expand(data: Data, rows: Rows) -> tuple[Tensor, Tensor]:
    """For every row, each node class of its graph: the positions of both."""
    pointer = data.ptr if hasattr(data, "ptr") and data.ptr is not None else torch.tensor([0, data.num_nodes])
    start, length = pointer[:-1][rows.graph], pointer.diff()[rows.graph]
    row = torch.repeat_interleave(torch.arange(len(length)), length)
    offset = torch.arange(len(row)) - torch.repeat_interleave(length.cumsum(0) - length, length)
    return row, start[row] + offset


def _rooflines(data: Data, rows: Rows, row: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Roofline in ms, ``PAIR_FEATURES`` features and kernel count of every node class on every row, (M, ...)."""
    cost = data.cost.float()[node, rows.decomposed[row].long()]
    rates = rows.rates.float()
    precisions = (rows.rates.shape[1] - 4) // 2
    rate = rates[row, data.precision[node] + precisions * data.matrix[node]]
    bandwidth, launch_ms, units, cache = rates[row, -4:].unbind(dim=-1)
    flops, bytes_read, bytes_written, kernels = cost.unbind(dim=-1)
    compute_ms = 1e3 * flops / rate + _TINY_MS
    memory_ms = 1e3 * (bytes_read + bytes_written) / bandwidth + _TINY_MS
    launches_ms = kernels * launch_ms
    roofline_ms = torch.maximum(compute_ms, memory_ms) + launches_ms
    tiles, elements, input_bytes, output_bytes, parameter_bytes = data.sizes[node].unbind(dim=-1)
    waves = tiles / units
    # Whether a weight is still in the cache after a run depends on all others.
    all_parameter_bytes = scatter(data.count[node] * parameter_bytes, row, dim_size=len(rows.graph))[row]
    inputs, outputs, parameters, all_parameters = (
        ((size + 1) / cache).log() for size in (input_bytes, output_bytes, parameter_bytes, all_parameter_bytes)
    )
    balance = (compute_ms / memory_ms).log()
    pair = [
        compute_ms.log() / 5,
        memory_ms.log() / 5,
        balance / 5,
        torch.sigmoid(2 * balance),
        launches_ms / roofline_ms,
        (waves + 1e-3).log() / 5,
        waves / waves.ceil().clamp(min=1.0),
        (elements / (units * 2048) + 1e-3).log() / 5,
        inputs / 5,
        outputs / 5,
        torch.sigmoid(inputs),
        torch.sigmoid(outputs),
        parameters / 5,
        kernels / 6,
        all_parameters / 5,
        torch.sigmoid(2 * all_parameters),
    ]
    return roofline_ms, torch.stack(pair, dim=-1), kernels
