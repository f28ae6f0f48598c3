"""Import public measurements: ``python -m data_collection.import_measurements``; see its file in ``conf``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hydra
from omegaconf import DictConfig
from rich.progress import track

from data_collection.imports import Import, check_limit, lines
from data_collection.mains import one_line_errors
from data_collection.sources import Options, Source, sources_of
from gnnperf.output import check_writable
from gnnperf.records import Record, write_records


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
