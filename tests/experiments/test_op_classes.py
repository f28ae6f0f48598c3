import numpy as np
import pytest
import torch

from experiments.op_classes import OpClassTimes, op_class_times
from gnnperf.batches import predict_ms
from gnnperf.cost.registry import OP_CLASSES
from gnnperf.model import Ensemble, PerformanceModel
from gnnperf.training import model_config

POSITIONS = [53, 0, 31, 1, 2, 30]
CONV, MATMUL = OP_CLASSES.index("conv"), OP_CLASSES.index("matmul")


@pytest.fixture(scope="module")
def model() -> Ensemble:
    torch.manual_seed(0)
    model = Ensemble([PerformanceModel(model_config(width=16, layers=2, embedding=4)) for _ in range(2)])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model


def test_classes_and_overhead_add_up_to_the_prediction(toy_dataset, model):
    times = op_class_times(model, toy_dataset, POSITIONS, graphs_per_step=2)
    total_ms = times.predicted_ms.sum(axis=1) + times.overhead_ms
    assert total_ms == pytest.approx(predict_ms(model, toy_dataset, POSITIONS), rel=1e-4)
    convolutional = np.array([p < 27 for p in POSITIONS])
    assert (times.predicted_ms[convolutional, CONV] > 0).all() and (times.predicted_ms[~convolutional, CONV] == 0).all()
    assert set(np.array(times.dominant())[~convolutional]) == {"matmul"}


def test_an_untrained_model_predicts_the_roofline(toy_dataset):
    untrained = Ensemble([PerformanceModel(model_config(width=16, layers=2, embedding=4))])
    times = op_class_times(untrained, toy_dataset, POSITIONS)
    assert times.predicted_ms == pytest.approx(times.roofline_ms, rel=1e-5)
    assert times.overhead_ms == pytest.approx(np.zeros(6), abs=1e-6)
    table = times.table()
    ratios = table["predicted over roofline"].drop("(overhead)")
    assert ratios.tolist() == pytest.approx([1.0] * len(ratios), rel=1e-5)


def test_the_table_tells_shares_and_ratios():
    predicted_ms, roofline_ms = np.zeros((2, len(OP_CLASSES))), np.zeros((2, len(OP_CLASSES)))
    predicted_ms[:, CONV], roofline_ms[:, CONV] = (6.0, 3.0), (3.0, 3.0)
    predicted_ms[0, MATMUL], roofline_ms[0, MATMUL] = 2.0, 1.0
    times = OpClassTimes(predicted_ms, roofline_ms, np.array([2.0, 0.0]))
    assert times.dominant() == ["conv", "conv"]
    table = times.table()
    assert table.index.tolist() == ["conv", "matmul", "(overhead)"]
    assert table["rows"].tolist() == [2, 1, 2]
    assert table["share of predicted time %"].tolist() == [80.0, 10.0, 10.0]
    assert table["predicted over roofline"].tolist()[:2] == [1.5, 2.0]
