"""Graphs of networks and their tensors at different batch sizes, cached in a folder.

The cache makes the next run start at once; deleting it loses nothing. Single layers are many and small: of them only
the tensors are kept, many in a file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch_geometric.data import Data

from gnnperf import networks
from gnnperf.capture import capture_owned
from gnnperf.capture.autocast import with_bf16_autocast
from gnnperf.features import FEATURE_VERSION, graph_data
from gnnperf.graph import FORMAT_VERSION, ComputationGraph
from gnnperf.networks import ZooModel
from gnnperf.output import replace_whole
from gnnperf.packed_graphs import PackedGraphs
from gnnperf.records import parse_dims

CAPTURE_VERSION = 4
_CAPTURE_BATCH_SIZE = 4
# What ``fast_norm`` may change: layer and group norms, and RMS norms, which older timm makes of a power and a mean.
_FAST_NORMS = ("layer_norm", "group_norm", "rms_norm", "pow")


@dataclass(frozen=True, order=True, slots=True)
class Network:
    """What has a graph of its own, up to the batch size."""

    name: str
    image_size: int
    mode: str
    precision: str
    reparameterized: bool = False
    fast_norm: bool = False
    optimizer: str = ""
    dims: str = ""

    @property
    def is_layer(self) -> bool:
        """Whether this is a single layer, whose graph is captured as quickly as it is read."""
        return self.name.startswith("layer:")

    @property
    def digest(self) -> str:
        """A file name; fields at their defaults do not count, so that files outlive new fields."""
        content = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What is known of a captured network besides its tensors.

    Attributes:
        parameter_count: Of the network that was built.
        content: Equal for networks that run the same ops on the same tensors, at an equal batch.
        structure: Equal for the same network in every precision, at an equal batch.
        error: Why it could not be captured; empty if it could.
    """

    parameter_count: int = 0
    content: str = ""
    structure: str = ""
    error: str = ""


class GraphStore:
    """Graphs of networks and their tensors at different batch sizes, cached in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._graphs = Path(folder) / f"graphs-{FORMAT_VERSION}.{CAPTURE_VERSION}"
        self._data = Path(folder) / f"data-{FORMAT_VERSION}.{CAPTURE_VERSION}.{FEATURE_VERSION}"
        for path in (self._graphs, self._data):
            path.mkdir(parents=True, exist_ok=True)
        self._layers = PackedGraphs(self._data / "layers")

    def graph(self, network: Network, batch_size: int) -> ComputationGraph:
        """The graph of ``network``.

        Raises:
            ValueError: If it cannot be built or captured.
        """
        return _at(network, self._captured(network), batch_size)

    def _captured(self, network: Network) -> ComputationGraph:
        if network.is_layer:
            return self._capture(network)
        path = self._graphs / f"{network.digest}.json.gz"
        if path.exists():
            return ComputationGraph.from_json(gzip.decompress(path.read_bytes()).decode(), str(path))
        graph = self._capture(network)
        replace_whole(path, gzip.compress(graph.to_json().encode(), compresslevel=3, mtime=0))
        return graph

    def _capture(self, network: Network) -> ComputationGraph:
        """Capture, unless a graph that is there already tells all."""
        if network.precision == "amp_bf16":
            return with_bf16_autocast(self._captured(replace(network, precision="amp")))
        if network.fast_norm:
            plain = self._captured(replace(network, fast_norm=False))
            if not any(node.op in _FAST_NORMS for node in plain.nodes):
                return plain
        model = _build(network, _CAPTURE_BATCH_SIZE)
        if network.reparameterized and not model.folded:
            return self._captured(replace(network, reparameterized=False))
        return _capture(network, model)

    def data(self, network: Network, batch_sizes: Iterable[int]) -> tuple[GraphFacts, dict[int, Data]]:
        """The tensors of ``network`` at each batch size, from the cache where they are; failures are not kept.

        Those of layers reach the cache with ``flush``.
        """
        if network.is_layer:
            return self._layer_data(network, batch_sizes)
        path = self._data / f"{network.digest}.pt"
        content = torch.load(path, weights_only=True) if path.exists() else {"facts": None, "data": {}}
        missing = sorted(set(batch_sizes) - content["data"].keys())
        if content["facts"] is None or missing:
            try:
                self._fill(network, missing, content)
            except ValueError as error:
                return GraphFacts(error=str(error)), {}
            saved = io.BytesIO()
            torch.save(content, saved)
            replace_whole(path, saved.getvalue())
        return GraphFacts(**content["facts"]), {b: Data.from_dict(content["data"][b]) for b in batch_sizes}

    def _fill(self, network: Network, batch_sizes: Sequence[int], content: dict) -> None:
        graph = self._captured(network)
        content["data"] |= {b: graph_data(_at(network, graph, b)).to_dict() for b in batch_sizes}
        content["facts"] = _facts(graph)

    def _layer_data(self, network: Network, batch_sizes: Iterable[int]) -> tuple[GraphFacts, dict[int, Data]]:
        keys = {b: f"{network.digest}@{b}" for b in batch_sizes}
        if missing := [b for b, key in keys.items() if self._layers.get(key) is None]:
            try:
                graph = self._capture(network)
                for b in missing:
                    self._layers.add(keys[b], _facts(graph), graph_data(_at(network, graph, b)).to_dict())
            except ValueError as error:
                return GraphFacts(error=str(error)), {}
        found = {b: entry for b, key in keys.items() if (entry := self._layers.get(key)) is not None}
        facts = next(facts for facts, _ in found.values())
        return GraphFacts(**facts), {b: Data.from_dict(data) for b, (_, data) in found.items()}

    def flush(self) -> None:
        """Write what is not in the cache yet."""
        self._layers.flush()


def _facts(graph: ComputationGraph) -> dict[str, int | str]:
    """``GraphFacts`` of a graph that was captured, as they are saved."""
    return {
        "parameter_count": graph.parameter_count,
        "content": graph.content_hash,
        "structure": graph.structure_hash,
    }


def _at(network: Network, graph: ComputationGraph, batch_size: int) -> ComputationGraph:
    if graph.rescale_problem(batch_size):
        return _capture(network, _build(network, batch_size))
    return graph.rescale(batch_size)


def _build(network: Network, batch_size: int) -> ZooModel:
    return networks.build(
        network.name,
        batch_size,
        network.image_size or None,
        parse_dims(network.dims),
        mode=network.mode,
        reparameterize=network.reparameterized,
        fast_norm=network.fast_norm,
    )


def _capture(network: Network, model: ZooModel) -> ComputationGraph:
    optimizer = network.optimizer or None
    return capture_owned(model.module, model.example_inputs, network.mode, network.precision, network.name, optimizer)
