"""The times of single nodes that lie beside NeuSight's runs of whole networks.

A table ``scripts/asplos/label/DEVICE/RUN.csv`` lists the nodes of a trace by torch.fx. They are not the nodes of a
captured graph: a transformer layer stands there once, however often it repeats; views are listed, and a fused op may be
several nodes. Each node ran alone between two events, so that its launch is part of its time and their sum is not the
time of the network. Names and times are therefore kept as they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

# What the trace lists besides calls.
_NO_CALLS = ("placeholder", "get_attr", "output")


def node_times_ms(path: Path) -> tuple[tuple[str, float], ...]:
    """Name and milliseconds of every node of a table that gives a tensor; none if there is no table.

    The time of a training step's node is that of its forward, its backward and the accumulation of its gradients. Nodes
    that give no tensor are calls of Python, such as ``size``.

    Raises:
        ValueError: If the table is damaged.
    """
    if not path.exists():
        return ()
    where = f"{path.parent.name}/{path.name}"
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: not a table ({' '.join(str(error).split())})") from error
    if missing := {"op", "Name", "dtype", "latency"} - set(table.columns):
        raise ValueError(f"{where}: not a table of timed nodes (it lacks {', '.join(sorted(missing))})")
    table = table[table["dtype"].notna() & ~table.op.isin(_NO_CALLS)]
    times_ms = pd.to_numeric(table.latency, errors="coerce")
    if not (np.isfinite(times_ms) & (times_ms >= 0)).all():
        raise ValueError(f"{where}: a latency is not a number of milliseconds")
    return tuple(zip(table["Name"].astype(str).tolist(), times_ms.tolist(), strict=True))
