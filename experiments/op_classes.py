"""What the model says of the classes of ops, convolutions or normalizations, of which no measurement speaks.

Only totals are measured. So there is no error of a class of ops: there are predicted times of classes, and errors of
whole networks, told apart by the class that takes most of their predicted time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnnperf.batches import Batches, on_device, rows_to
from gnnperf.cost.registry import OP_CLASSES
from gnnperf.dataset import Dataset
from gnnperf.metrics import Array
from gnnperf.model import Ensemble, Times


@dataclass(frozen=True)
class OpClassTimes:
    """Predicted times of rows by class of ops.

    Attributes:
        predicted_ms: (rows, ``OP_CLASSES``).
        roofline_ms: (rows, ``OP_CLASSES``), launches included.
        overhead_ms: (rows,), what belongs to no op.
    """

    predicted_ms: Array
    roofline_ms: Array
    overhead_ms: Array

    def dominant(self) -> list[str]:
        """Of every row, the class of ops that takes most of its predicted time."""
        return [OP_CLASSES[number] for number in self.predicted_ms.argmax(axis=1)]

    def table(self) -> pd.DataFrame:
        """Of every class: rows that have it, mean share of the predicted total, median ratio to the roofline."""
        total_ms = self.predicted_ms.sum(axis=1) + self.overhead_ms
        lines = {}
        for number, name in enumerate(OP_CLASSES):
            has = self.roofline_ms[:, number] > 0
            if has.any():
                ratios = self.predicted_ms[has, number] / self.roofline_ms[has, number]
                share = 100 * float((self.predicted_ms[:, number] / total_ms).mean())
                lines[name] = {"rows": int(has.sum()), _SHARE: share, _RATIO: float(np.median(ratios))}
        table = pd.DataFrame.from_dict(lines, orient="index").sort_values(_SHARE, ascending=False)
        table.loc["(overhead)"] = [len(total_ms), 100 * float((self.overhead_ms / total_ms).mean()), np.nan]
        return table.astype({"rows": int}).rename_axis("op class")


_SHARE, _RATIO = "share of predicted time %", "predicted over roofline"


@torch.no_grad()
def op_class_times(
    model: Ensemble, dataset: Dataset, positions: Sequence[int], graphs_per_step: int = 64
) -> OpClassTimes:
    """Predict the samples at ``positions`` by class of ops."""
    model.eval()
    device = next(model.parameters()).device
    order: list[int] = []
    parts: list[list[Tensor]] = []
    for batch, rows, _, chosen in Batches(dataset, positions).order(graphs_per_step, None):
        with on_device(device):
            batch, rows = batch.to(device), rows_to(rows, device)
            of_members = [member(batch, rows) for member in model.members]
            predicted = torch.stack([_by_class(t, batch, t.node_ms) for t in of_members]).mean(dim=0)
            one = of_members[0]  # all have the same roofline
            roofline = _by_class(one, batch, one.node_ms / one.log_ratio.exp())
            overhead = torch.stack([t.overhead_ms for t in of_members]).mean(dim=0)
        parts.append([predicted.cpu(), roofline.cpu(), overhead.cpu()])
        order += chosen
    place = {position: row for row, position in enumerate(order)}
    back = [place[position] for position in positions]
    predicted_ms, roofline_ms, overhead_ms = (
        torch.cat(part).double().numpy()[back] for part in zip(*parts, strict=True)
    )
    return OpClassTimes(predicted_ms, roofline_ms, overhead_ms)


def _by_class(times: Times, batch: Data, node_ms: Tensor) -> Tensor:
    """Sums of the time of nodes over classes, (rows, ``OP_CLASSES``)."""
    rows, classes = len(times.total_ms), len(OP_CLASSES)
    place = times.row * classes + batch.op_class[times.node]
    return torch.zeros(rows * classes).index_add_(0, place, batch.count[times.node] * node_ms).view(rows, classes)
