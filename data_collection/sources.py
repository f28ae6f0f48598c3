"""The public repositories with measurements that can be imported, and what each holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from data_collection.help_results import import_help
from data_collection.imports import Import
from data_collection.justus_results import import_justus
from data_collection.neusight_kernels import import_neusight_kernels
from data_collection.neusight_results import import_neusight
from data_collection.timm_results import import_timm, names_from_file, names_from_timm
from data_collection.torchvision_results import import_torchvision

REPOSITORIES = {
    "timm": "https://github.com/huggingface/pytorch-image-models",
    "torchvision": "https://github.com/ryujaehun/pytorch-gpu-benchmark",
    "neusight": "https://github.com/sitar-lab/NeuSight",
    "justus": "https://github.com/CDECatapult/ml-performance-prediction",
    "help": "https://github.com/HayeonLee/HELP",
}


@dataclass(frozen=True)
class Options:
    """What importers may be told.

    Attributes:
        limit_per_file: Most rows to take of a file; None for all. Importers of whole networks take all.
        seed: Of the sample.
        names: File of families and names for timm's results; None for the installed timm's.
    """

    limit_per_file: int | None = None
    seed: int = 0
    names: str | None = None


@dataclass(frozen=True)
class Source:
    """Measurements of one kind.

    Attributes:
        repository: Where they are, a key of ``REPOSITORIES``.
        title: What is printed.
        files: Pattern of files in a clone that has such measurements.
        read: Imports them from the clone.
    """

    repository: str
    title: str
    files: str
    read: Callable[[Path, Options], Import]


def _timm(clone: Path, options: Options) -> Import:
    return import_timm(clone, names_from_timm() if options.names is None else names_from_file(options.names))


SOURCES = (
    Source("timm", "timm's networks", "results/benchmark-*.csv", _timm),
    Source(
        "torchvision",
        "torchvision's networks",
        "results/*/*_model_*_benchmark.csv",
        lambda clone, options: import_torchvision(clone),
    ),
    Source(
        "neusight",
        "transformers of NeuSight",
        "scripts/asplos/label/*/*.json",
        lambda clone, options: import_neusight(clone),
    ),
    Source(
        "neusight",
        "kernels of NeuSight",
        "scripts/asplos/data/dataset*/*/**/*.csv",
        lambda clone, options: import_neusight_kernels(clone, options.limit_per_file, options.seed),
    ),
    Source(
        "justus",
        "layers of Justus et al.",
        "prediction_model/data/*.parquet",
        lambda clone, options: import_justus(clone, options.limit_per_file, options.seed),
    ),
    Source(
        "help",
        "cells of HELP",
        "data/nasbench201/latency/*.pt",
        lambda clone, options: import_help(clone, options.limit_per_file, options.seed),
    ),
)


def sources_of(clone: Path, repositories: Iterable[str] = tuple(REPOSITORIES)) -> list[Source]:
    """The kinds of measurements that a folder has.

    Args:
        clone: Of one of ``repositories``.
        repositories: Keys of ``REPOSITORIES``; all by default.

    Raises:
        ValueError: If there is no such folder, or it has none.
    """
    if not clone.is_dir():
        raise ValueError(f"there is no folder {str(clone)!r}")
    known = [source for source in SOURCES if source.repository in set(repositories)]
    found = [source for source in known if any(clone.glob(source.files))]
    if not found:
        files = ", ".join(f"{source.files} ({REPOSITORIES[source.repository]})" for source in known)
        raise ValueError(f"no measurements in {str(clone)!r}: a clone of a known repository has one of {files}")
    return found
