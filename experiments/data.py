"""The data set and the split that a configuration asks for."""

from __future__ import annotations

import fnmatch
import hashlib
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from data_collection.imports import Import, check_limit, lines
from data_collection.sources import REPOSITORIES, Options, sources_of
from gnnperf.dataset import Dataset, Sample, build_dataset
from gnnperf.distributed import Ranks
from gnnperf.splits import Split, SplitRules, split_samples


def load_records(config: DictConfig) -> Import:
    """Import what the group ``data`` describes, from all clones that it names a folder of.

    Raises:
        ValueError: If it names none, one is not known or damaged, or nothing is wanted of what they have.
    """
    imported = Import()
    for name, clone in _clones(config).items():
        limit = config.limit_per_file.get(name)
        check_limit(limit)
        for source in sources_of(clone, [name]):
            read = source.read(clone, Options(limit, config.seed, config.names))
            imported.records += read.records
            imported.skipped.update(read.skipped)
    wanted = [record for record in imported.records if config.mode in (None, record.mode)]
    if config.networks is not None:
        wanted = [record for record in wanted if fnmatch.fnmatch(record.network, config.networks)]
    if not wanted:
        raise ValueError(f"no measured network matches data.networks={config.networks}: give another pattern")
    if others := len(imported.records) - len(wanted):
        imported.skipped["not asked for by data.mode and data.networks"] = others
    return Import(wanted, imported.skipped)


def _clones(config: DictConfig) -> dict[str, Path]:
    """The folders of clones that are named, by repository."""
    if unknown := sorted(config.clones.keys() - REPOSITORIES.keys()):
        raise ValueError(f"data.clones.{unknown[0]} is unknown: give clones of {', '.join(REPOSITORIES)}")
    clones = {str(name): Path(folder) for name, folder in config.clones.items() if folder is not None}
    if not clones:
        ways = " or ".join(
            f"data.clones.{name}=FOLDER, or set GNNPERF_{name.upper()}_RESULTS, to a clone of {REPOSITORIES[name]}"
            for name in config.clones
        )
        raise ValueError(f"no measurements: give {ways}")
    return clones


def load_dataset(config: Any) -> Dataset:
    """Import and capture what the group ``data`` describes, and print what was left out.

    Raises:
        ValueError: As ``load_records``.
    """
    imported = load_records(config)
    dataset = build_dataset(imported.records, Path(config.cache), config.workers)
    dataset.skipped.update(imported.skipped)
    print(f"{len(dataset.samples)} measurements of {len(dataset.graphs)} graphs")
    print(*lines(dataset.skipped), sep="\n", flush=True)
    return dataset


def load_dataset_together(config: DictConfig, ranks: Ranks) -> Dataset:
    """``load_dataset`` on every rank; the first captures what is not in the cache, and then the others read it.

    Raises:
        ValueError: As ``load_dataset``, or if a rank has other data.
    """
    dataset = ranks.on_first(lambda: load_dataset(config))
    if dataset is None:
        dataset = load_dataset(OmegaConf.merge(config, {"workers": 1}))
    graphs, samples = dataset.graphs, dataset.samples
    facts = (len(graphs), sum(int(graph.num_nodes) for graph in graphs), [(s.record, s.graph) for s in samples])
    ranks.check_equal(hashlib.sha256(repr(facts).encode()).hexdigest(), "measurements or graphs")
    return dataset


def split_rules(config: DictConfig) -> SplitRules:
    """What the group ``split`` says.

    Raises:
        ValueError: With the place in it that is wrong.
    """
    content = OmegaConf.to_container(config, resolve=True)
    assert isinstance(content, dict)
    try:
        return SplitRules.parse({str(name): value for name, value in content.items()})
    except ValueError as error:
        raise ValueError(f"split.{error}") from error


def make_split(config: DictConfig, samples: list[Sample]) -> Split:
    """Split as the group ``split`` says, and print the sizes.

    Raises:
        ValueError: If it is wrong, or nothing is left to train on.
    """
    rules = split_rules(config)
    split = split_samples(samples, rules)
    if not split.train:
        raise ValueError("the split leaves nothing to train on: hold out less, or import more networks")
    for what, name in (("families", "family"), ("devices", "device")):
        wanted = {value for selection in (rules.validation, *rules.test.values()) for value in selection.names(name)}
        there = {getattr(sample.record, name) for sample in samples}
        if absent := sorted(value for value in wanted if not fnmatch.filter(there, value)):
            print(f"no measurements of the {what} {', '.join(absent)}")
    print(
        f"split {split.fingerprint}: {len(split.train)} rows to train on, {len(split.validation)} of validation, "
        f"{len(split.test)} of test, {len(split.left_out)} left out (by rule, or since their graph is also a "
        "validation or test graph)"
    )
    if len(split.groups) > 1:
        print("of test: " + ", ".join(f"{len(positions)} {name}" for name, positions in split.groups.items()))
    sys.stdout.flush()
    return split
