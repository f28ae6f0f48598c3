"""Records joined with the graphs of their networks, as tensors ready to train on."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.progress import track
from torch_geometric.data import Data

from gnnperf.graph_store import GraphFacts, GraphStore, Network
from gnnperf.packed_graphs import PACK_SIZE
from gnnperf.records import Record


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
