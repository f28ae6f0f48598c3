"""Records joined with the graphs of their networks, as tensors ready to train on.

Graphs and their tensors are kept in a cache folder, so that the next run starts at once; deleting it loses nothing.
Single layers are many and small: of them only the tensors are kept, many in a file.
"""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.progress import track
from torch_geometric.data import Data

from gnnperf import networks
from gnnperf.capture import capture_owned
from gnnperf.capture.autocast import with_bf16_autocast
from gnnperf.features import FEATURE_VERSION, graph_data
from gnnperf.graph import FORMAT_VERSION, ComputationGraph
from gnnperf.networks import ZooModel
from gnnperf.output import replace_whole
from gnnperf.packed_graphs import PACK_SIZE, PackedGraphs
from gnnperf.records import Record, parse_dims

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


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured time of a graph: ``graph`` is a position in ``Dataset.graphs``."""

    record: Record
    graph: int
    structure: str


@dataclass
class Dataset:
    """Measured times and the graphs that they belong to.

    Attributes:
        graphs: Tensors of every distinct network and batch size.
        samples: Measurements.
        skipped: How many records were left out, by reason.
    """

    graphs: list[Data] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def parameter_counts_agree(reported: int, built: int) -> bool:
    """Whether a count that is reported in millions with two decimals is that of the network built, within 1 %."""
    return abs(reported - built) <= max(0.01 * built, 5_000)


def build_dataset(records: Iterable[Record], cache: str | Path, workers: int = 1) -> Dataset:
    """Capture the networks of ``records`` and join the two; what cannot be joined is counted by reason.

    A record whose parameter count differs by more than 1 % from the network that was built measured another one.
    Networks with the same graph share its tensors.

    Args:
        records: Measurements; those that failed are left out and counted.
        cache: Folder for graphs and tensors.
        workers: Processes that capture; 1 for none besides this one.
    """
    dataset = Dataset()
    groups: dict[Network, list[Record]] = defaultdict(list)
    for record in records:
        if record.status != "ok":
            dataset.skipped[f"status {record.status}"] += 1
        else:
            groups[_network(record)].append(record)
    jobs = [(network, _batch_sizes(group)) for network, group in sorted(groups.items())]
    if workers > 1:
        _prepare_all(Path(cache), jobs, workers)
    store = GraphStore(cache)
    positions: dict[tuple[str, int], int] = {}
    try:
        for network, batch_sizes in track(jobs, "reading graphs"):
            _join(*store.data(network, batch_sizes), groups[network], positions, dataset)
    finally:
        store.flush()
    return dataset


# A network and the batch sizes at which its tensors are wanted.
Job = tuple[Network, list[int]]


def _network(record: Record) -> Network:
    return Network(
        record.network,
        record.image_size,
        record.mode,
        record.precision,
        record.reparameterized,
        record.fast_norm,
        record.optimizer,
        record.dims,
    )


def _batch_sizes(group: list[Record]) -> list[int]:
    return sorted({record.batch_size for record in group})


def _prepare_all(folder: Path, jobs: list[Job], workers: int) -> None:
    layers = [job for job in jobs if job[0].is_layer]
    parts = [[job] for job in jobs if not job[0].is_layer]
    parts += [layers[start : start + PACK_SIZE] for start in range(0, len(layers), PACK_SIZE)]
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_worker) as pool:
        waiting = [pool.submit(_prepare, folder, part) for part in parts]
        for done in track(as_completed(waiting), "capturing networks", total=len(parts)):
            done.result()


def _start_worker() -> None:
    torch.set_num_threads(1)
    gc.set_threshold(200_000, 50, 100)  # graphs are many small objects that stay: frequent collections find nothing


def _prepare(folder: Path, jobs: list[Job]) -> None:
    store = _store_of_worker(folder)
    for network, batch_sizes in jobs:
        store.data(network, batch_sizes)
    store.flush()


@cache
def _store_of_worker(folder: Path) -> GraphStore:
    """One for all of a process, because a store that reads layers reads all that there are."""
    return GraphStore(folder)


def _join(
    facts: GraphFacts,
    data: dict[int, Data],
    group: list[Record],
    positions: dict[tuple[str, int], int],
    dataset: Dataset,
) -> None:
    for record in group:
        if facts.error:
            dataset.skipped[f"cannot be captured: {facts.error}"] += 1
        elif record.parameter_count and not parameter_counts_agree(record.parameter_count, facts.parameter_count):
            dataset.skipped["other parameter count than the network built"] += 1
        else:
            key = (facts.content, record.batch_size)
            if key not in positions:
                positions[key] = len(dataset.graphs)
                dataset.graphs.append(data[record.batch_size])
            dataset.samples.append(Sample(record, positions[key], facts.structure))
