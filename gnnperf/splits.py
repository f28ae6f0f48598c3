"""Which samples are trained on, chosen by and tested on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
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
    """Hold out whole families; graphs that also occur there under another name are trained on nowhere."""
    return _split(
        samples,
        lambda s: s.record.family in families.validation,
        lambda s: s.record.family in families.test,
    )


def split_all(samples: Sequence[Sample], validation_families: Collection[str]) -> Split:
    """Train on everything, the validation families included: for the weights that ship."""
    validation = tuple(i for i, s in enumerate(samples) if s.record.family in validation_families)
    return Split(tuple(range(len(samples))), validation, ())


def _split(samples: Sequence[Sample], in_validation: Callable[[Sample], bool], in_test: Callable[[Sample], bool]) -> Split:
    test = [i for i, s in enumerate(samples) if in_test(s)]
    held = {samples[i].structure for i in test}
    validation = [i for i, s in enumerate(samples) if in_validation(s) and not in_test(s)]
    kept_validation = [i for i in validation if samples[i].structure not in held]
    held |= {samples[i].structure for i in validation}
    taken = {*test, *validation}
    rest = [i for i in range(len(samples)) if i not in taken]
    train = [i for i in rest if samples[i].structure not in held]
    left_out = [i for i in rest if samples[i].structure in held]
    left_out += [i for i in validation if i not in set(kept_validation)]
    return Split(tuple(train), tuple(kept_validation), tuple(test), tuple(sorted(left_out)))
