"""What every importer returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gnnperf.records import Record


@dataclass
class Import:
    """Rows that were read, and how many were left out by reason."""

    records: list[Record] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def check_limit(limit_per_file: int | None) -> None:
    """Check how many rows of a file are wanted; None for all.

    Raises:
        ValueError: If it is no positive number.
    """
    if limit_per_file is not None and not (isinstance(limit_per_file, int) and limit_per_file >= 1):
        raise ValueError(f"limit_per_file must be at least 1, not {limit_per_file}")


def drawn(rows: pd.DataFrame, limit: int | None, seed: int, result: Import) -> pd.DataFrame:
    """At most ``limit`` of ``rows``, at random and in their order; the others are counted in ``result``.

    Files of equally many rows give the same places.
    """
    if limit is None or len(rows) <= limit:
        return rows
    result.skipped["not drawn for the sample"] += len(rows) - limit
    return rows.iloc[np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False))]


def lines(skipped: Counter[str]) -> Iterator[str]:
    """A printed line for each reason."""
    for reason, count in skipped.most_common():
        yield f"skipped {count:6d}  {reason}"
