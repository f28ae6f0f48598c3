"""Which samples are trained on, chosen by and tested on: selections by any field of their records."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from gnnperf.dataset import Sample
from gnnperf.records import Record

_FIELDS = frozenset(f.name for f in fields(Record))
_DRAW = frozenset({"share", "seed"})


@dataclass(frozen=True)
class Condition:
    """Samples by the fields of their records, and of these a share of graphs.

    Attributes:
        values: Of every field that matters, what it may be: values, of texts also shell patterns such as ``data/*``.
        share: How much of the graphs to take, from 0 to 1. Samples of one network, at whatever batch, in whatever
            precision and on whatever device, are taken together.
        seed: Of what is taken.
    """

    values: Mapping[str, tuple[Any, ...]]
    share: float = 1.0
    seed: int = 0

    @classmethod
    def parse(cls, content: Any) -> Condition:
        """From ``{field: value or list of values}``, with ``share`` and ``seed`` if need be.

        Raises:
            ValueError: If it is something else.
        """
        if not isinstance(content, Mapping):
            raise ValueError(f"{content!r} does not map fields of records to values")
        if unknown := sorted(map(str, content.keys() - _FIELDS - _DRAW)):
            raise ValueError(f"records have no field {unknown[0]!r}: take one of {', '.join(sorted(_FIELDS))}")
        share = content.get("share", 1.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"share is {share!r}: give a number from 0 to 1")
        values = {
            name: tuple(value) if isinstance(value, list | tuple) else (value,)
            for name, value in content.items()
            if name not in _DRAW
        }
        return cls(values, float(share), content.get("seed", 0))

    def matches(self, sample: Sample) -> bool:
        """Whether it takes ``sample``."""
        taken = all(_any_matches(getattr(sample.record, name), values) for name, values in self.values.items())
        return taken and (self.share == 1 or _draw(self.seed, sample.structure) < self.share)


@dataclass(frozen=True)
class Selection:
    """Samples that one of several conditions takes; of no condition, none."""

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, content: Any) -> Selection:
        """From a condition, or a list of them, as ``Condition.parse`` reads.

        Raises:
            ValueError: As ``Condition.parse``.
        """
        conditions = content if isinstance(content, list | tuple) else [content]
        return cls(tuple(Condition.parse(condition) for condition in conditions))

    def matches(self, sample: Sample) -> bool:
        """Whether it takes ``sample``."""
        return any(condition.matches(sample) for condition in self.conditions)

    def names(self, field_name: str) -> set[str]:
        """What the conditions say that a field may be."""
        return {value for condition in self.conditions for value in condition.values.get(field_name, ())}


@dataclass(frozen=True)
class SplitRules:
    """What makes a split.

    Attributes:
        test: Groups of samples to test on; of several that take a sample, it is of the first.
        validation: Samples to choose by, of those that are not tested.
        left_out: Samples for no part, unless they are tested.
        known_graphs: Groups of ``test`` whose graphs may be trained on, as they were measured elsewhere. No graph of
            any other group is, nor one of the validation samples, under whatever name or in whatever data set.
        train_on_validation: Whether validation samples are trained on as well, for weights that are tested on nothing.
    """

    test: Mapping[str, Selection] = field(default_factory=dict)
    validation: Selection = Selection()
    left_out: Selection = Selection()
    known_graphs: frozenset[str] = frozenset()
    train_on_validation: bool = False

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> SplitRules:
        """From what a file says of the attributes, each at its default where it says nothing.

        Raises:
            ValueError: If a selection is none, with its place, or a group of ``known_graphs`` is not in ``test``.
        """
        test = {str(name): _parse(f"test.{name}", part) for name, part in (content.get("test") or {}).items()}
        known = frozenset(map(str, content.get("known_graphs", ())))
        if strange := sorted(known - test.keys()):
            raise ValueError(f"known_graphs: there is no group {strange[0]!r} in test")
        validation, left_out = (_parse(name, content.get(name, ())) for name in ("validation", "left_out"))
        return cls(test, validation, left_out, known, bool(content.get("train_on_validation", False)))


@dataclass(frozen=True)
class Split:
    """Positions of samples.

    Attributes:
        train: To train on.
        validation: To choose by.
        test: To test on.
        left_out: In no part, by rule or since their graph is also one of validation or test.
        groups: Those of ``test``, by the name of their group.
    """

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Equal for equal splits of equal samples in the same order."""
        parts = (self.train, self.validation, self.test)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def split_samples(samples: Sequence[Sample], rules: SplitRules) -> Split:
    """Split as ``rules`` say."""
    parts: dict[str, list[int]] = {name: [] for name in ("train", "validation", "test", "left_out")}
    groups: dict[str, list[int]] = {name: [] for name in rules.test}
    for position, sample in enumerate(samples):
        group = next((name for name, selection in rules.test.items() if selection.matches(sample)), None)
        if group is not None:
            groups[group].append(position)
        parts["test" if group is not None else _part(sample, rules)].append(position)
    if rules.train_on_validation:
        train, validation = sorted([*parts["train"], *parts["validation"]]), parts["validation"]
    else:
        new = [p for name, positions in groups.items() if name not in rules.known_graphs for p in positions]
        validation, also_tested = _without(samples, parts["validation"], new)
        train, also_held = _without(samples, parts["train"], [*new, *parts["validation"]])
        parts["left_out"] += [*also_tested, *also_held]
    return Split(
        tuple(train),
        tuple(validation),
        tuple(parts["test"]),
        tuple(sorted(parts["left_out"])),
        {name: tuple(positions) for name, positions in groups.items()},
    )


def draw_few(
    samples: Sequence[Sample], positions: Iterable[int], count: int, seed: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the ``positions`` of each device so many at random, as measured there first, and the others, both in order.

    Raises:
        ValueError: If a device has no more than ``count``, so that nothing would be left to test on.
    """
    by_device: dict[str, list[int]] = defaultdict(list)
    for position in positions:
        by_device[samples[position].record.device].append(position)
    few: set[int] = set()
    for device, own in by_device.items():
        if len(own) <= count:
            raise ValueError(f"{device} has {len(own)} rows: {count} cannot be drawn so that some are left")
        few.update(random.Random(f"{seed}:{device}").sample(own, count))
    every = sorted(position for own in by_device.values() for position in own)
    return tuple(p for p in every if p in few), tuple(p for p in every if p not in few)


def _parse(place: str, content: Any) -> Selection:
    try:
        return Selection.parse(content)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _part(sample: Sample, rules: SplitRules) -> str:
    """Of a sample that is not tested."""
    if rules.left_out.matches(sample):
        return "left_out"
    return "validation" if rules.validation.matches(sample) else "train"


def _without(samples: Sequence[Sample], positions: list[int], held: Collection[int]) -> tuple[list[int], list[int]]:
    """Split ``positions`` into those whose network is not among the ``held`` samples under any name, and the others."""
    networks = {samples[p].structure for p in held}
    kept = [p for p in positions if samples[p].structure not in networks]
    return kept, [p for p in positions if samples[p].structure in networks]


def _any_matches(actual: Any, values: tuple[Any, ...]) -> bool:
    return any(
        fnmatchcase(actual, value) if isinstance(actual, str) and isinstance(value, str) else actual == value
        for value in values
    )


@cache
def _draw(seed: int, structure: str) -> float:
    """A number from 0 to 1 that looks drawn at random."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{structure}".encode()).digest()[:8], "big") / 2**64
