"""Which samples are trained on, chosen by and tested on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnperf.dataset import Sample


@dataclass(frozen=True)
class Split:
    """Positions of samples: ``left_out`` are in no part, since their graph is also one of validation or test."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    left_out: tuple[int, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Equal for equal splits of equal samples in the same order."""
        parts = (self.train, self.validation, self.test)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FamilySplit:
    """Families of architectures to validate and to test on."""

    validation: frozenset[str]
    test: frozenset[str]

    @classmethod
    def from_file(cls, path: str | Path, name: str) -> FamilySplit:
        """Read split ``name`` of a JSON file ``{name: {"test": [family], "validation": [family]}}``.

        Raises:
            ValueError: If there is no such file or split.
        """
        try:
            content = json.loads(Path(path).read_text())[name]
            return cls(frozenset(content["validation"]), frozenset(content["test"]))
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"cannot read split {name!r} from {str(path)!r}: {error!r}") from error


def split_by_family(samples: Sequence[Sample], families: FamilySplit) -> Split:
    """Hold out whole families.

    A network whose graph, in any precision, is also one of the held families is trained on nowhere; likewise none is
    validated on that is also tested.
    """
    parts: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for position, sample in enumerate(samples):
        parts[_part(sample.record.family, families)].append(position)
    validation, also_tested = _without(samples, parts["validation"], parts["test"])
    train, also_held = _without(samples, parts["train"], [*parts["test"], *parts["validation"]])
    return Split(tuple(train), tuple(validation), tuple(parts["test"]), tuple(sorted([*also_tested, *also_held])))


def split_all(samples: Sequence[Sample], validation_families: Collection[str]) -> Split:
    """Train on everything, the validation families included: for the weights that ship."""
    validation = tuple(i for i, s in enumerate(samples) if s.record.family in validation_families)
    return Split(tuple(range(len(samples))), validation, ())


def _part(family: str, families: FamilySplit) -> str:
    return "test" if family in families.test else "validation" if family in families.validation else "train"


def _without(samples: Sequence[Sample], positions: list[int], held: list[int]) -> tuple[list[int], list[int]]:
    """Split ``positions`` into those whose network is not among the ``held`` samples under any name, and the others."""
    networks = {samples[p].structure for p in held}
    kept = [p for p in positions if samples[p].structure not in networks]
    return kept, [p for p in positions if samples[p].structure in networks]
