"""What every importer returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from gnnperf.records import Record


@dataclass
class Import:
    """Rows that were read, and how many were left out by reason."""

    records: list[Record] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def lines(skipped: Counter[str]) -> Iterator[str]:
    """A printed line for each reason."""
    for reason, count in skipped.most_common():
        yield f"skipped {count:6d}  {reason}"
