import random

import numpy as np
import pytest
import torch

from gnnperf.batches import Batches, predict_ms
from gnnperf.model import PerformanceModel
from gnnperf.splits import Split
from gnnperf.training import model_config

SPLIT = Split(tuple(p for p in range(54) if p % 6 < 3), tuple(p for p in range(54) if p % 6 >= 3), ())


def test_minibatches_hold_every_row_once_beside_its_graph(toy_dataset):
    batches = Batches(toy_dataset, SPLIT.train)
    seen = []
    for batch, rows, log_ms, positions in batches.order(4, random.Random(0)):
        assert batch.num_graphs <= 4
        for row, position in enumerate(positions):
            sample = toy_dataset.samples[position]
            graph = batch.x[batch.batch == rows.graph[row]]
            assert torch.equal(graph, toy_dataset.graphs[sample.graph].x)
            assert log_ms[row].item() == pytest.approx(np.log(sample.record.time_ms), rel=1e-5)
        seen += positions
    assert sorted(seen) == sorted(SPLIT.train)
    assert seen != [p for *_, positions in batches.order(4, None) for p in positions]


def test_rows_are_counted_into_minibatches_without_end(joint_dataset):
    batches = Batches(joint_dataset, range(54, 87))  # eleven graphs of three rows
    plan = batches.plan_rows(7, random.Random(0))
    first, second = ([next(plan) for _ in range(4)] for _ in range(2))
    for whole in (first, second):
        assert [len(chosen) for chosen in whole] == [3, 3, 3, 2]
        assert sorted(key for chosen in whole for key in chosen) == list(range(18, 29))
    assert first != second
    assert next(batches.plan_rows(1000, random.Random(0))) != list(range(18, 29))  # a pass at most, shuffled


def test_predictions_come_in_the_order_asked_for(toy_dataset):
    model = PerformanceModel(model_config(width=16, layers=2, embedding=4))
    forward = predict_ms(model, toy_dataset, SPLIT.train)
    backward = predict_ms(model, toy_dataset, SPLIT.train[::-1], graphs_per_step=3)
    assert backward[::-1] == pytest.approx(forward, rel=1e-5)
