"""Import public measurements: ``python -m data_collection.import_measurements``; see its file in ``conf``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hydra
from omegaconf import DictConfig
from rich.progress import track

from data_collection.help_results import import_help
from data_collection.imports import Import, check_limit, lines
from data_collection.justus_results import import_justus
from data_collection.mains import one_line_errors
from data_collection.neusight_kernels import import_neusight_kernels
from data_collection.neusight_results import import_neusight
from data_collection.timm_results import import_timm, names_from_file, names_from_timm
from data_collection.torchvision_results import import_torchvision
from gnnperf.output import check_writable
from gnnperf.records import Record, write_records


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
        title: What is printed.
        files: Pattern of files in a clone that has such measurements.
        read: Imports them from the clone.
    """

    title: str
    files: str
    read: Callable[[Path, Options], Import]


def _timm(clone: Path, options: Options) -> Import:
    return import_timm(clone, names_from_timm() if options.names is None else names_from_file(options.names))


SOURCES = (
    Source("timm's networks", "results/benchmark-*.csv", _timm),
    Source(
        "torchvision's networks", "results/*/*_model_*_benchmark.csv", lambda clone, options: import_torchvision(clone)
    ),
    Source("transformers of NeuSight", "scripts/asplos/label/*/*.json", lambda clone, options: import_neusight(clone)),
    Source(
        "kernels of NeuSight",
        "scripts/asplos/data/dataset*/*/**/*.csv",
        lambda clone, options: import_neusight_kernels(clone, options.limit_per_file, options.seed),
    ),
    Source(
        "layers of Justus et al.",
        "prediction_model/data/*.parquet",
        lambda clone, options: import_justus(clone, options.limit_per_file, options.seed),
    ),
    Source(
        "cells of HELP",
        "data/nasbench201/latency/*.pt",
        lambda clone, options: import_help(clone, options.limit_per_file, options.seed),
    ),
)


def sources_of(clone: Path) -> list[Source]:
    """The kinds of measurements that a clone has.

    Raises:
        ValueError: If there is no such folder, or it has none.
    """
    if not clone.is_dir():
        raise ValueError(f"there is no folder {str(clone)!r}")
    found = [source for source in SOURCES if any(clone.glob(source.files))]
    if not found:
        known = ", ".join(f"{source.files} ({source.title})" for source in SOURCES)
        raise ValueError(f"no measurements in {str(clone)!r}: a clone of a known repository has one of {known}")
    return found


def import_measurements(config: DictConfig) -> list[Record]:
    """Import all clones, print what each gave and what was left out, and write the records.

    Raises:
        ValueError: If no clone is given, one is not known or damaged, or the file cannot be written.
    """
    if not config.clones:
        raise ValueError("no measurements: give clones=[FOLDER,...], clones of repositories with measurements")
    check_limit(config.limit_per_file)
    check_writable(config.output)
    options = Options(config.limit_per_file, config.seed, config.names)
    jobs = [(Path(clone), source) for clone in map(str, config.clones) for source in sources_of(Path(clone))]
    records: list[Record] = []
    report: list[str] = []
    for clone, source in track(jobs, "importing"):
        imported = source.read(clone, options)
        records += imported.records
        report += _report(clone, source, imported)
    print(*report, sep="\n")
    write_records(records, config.output)
    print(f"{len(records)} records in {config.output}", flush=True)
    return records


def _report(clone: Path, source: Source, imported: Import) -> Iterator[str]:
    yield f"{len(imported.records):7d} {source.title} in {clone}"
    yield from lines(imported.skipped)


@hydra.main(version_base="1.3", config_path="../conf", config_name="import_measurements")
@one_line_errors
def main(config: DictConfig) -> None:
    """Import as configured."""
    import_measurements(config)


if __name__ == "__main__":
    main()
