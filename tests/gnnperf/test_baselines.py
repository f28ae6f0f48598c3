import numpy as np
import pytest

from gnnperf.aggregates import AGGREGATES, aggregate, class_rooflines_ms
from gnnperf.baselines import BASELINES, CalibratedRoofline, GradientBoosting, LogLinear, Roofline
from gnnperf.cost.roofline import LAUNCH_MS
from gnnperf.features import COST_COLUMNS
from gnnperf.hardware import load_device

EVERY = range(54)
TRAIN, HELD = [p for p in EVERY if p % 6 < 3], [p for p in EVERY if p % 6 >= 3]


def _measured(dataset, positions):
    return np.array([dataset.samples[p].record.time_ms for p in positions])


def test_roofline_by_hand(toy_dataset):
    # The narrowest perceptron with one hidden layer: linear 48 -> 64, linear 64 -> 64, gelu, on 1024 rows of fp32.
    position = next(p for p in EVERY if toy_dataset.samples[p].record.network == "perceptron_64_1")
    sample = toy_dataset.samples[position]
    device = load_device(sample.record.device)
    bandwidth = device.memory_bandwidth_bytes_per_s
    rate = device.peak_flops_per_s("fp32", True)
    first = max(2 * 1024 * 48 * 64 / rate, 4 * (1024 * 48 + 48 * 64 + 64 + 1024 * 64) / bandwidth)
    second = max(2 * 1024 * 64 * 64 / rate, 4 * (1024 * 64 + 64 * 64 + 64 + 1024 * 64) / bandwidth)
    gelu = 4 * 2 * 1024 * 64 / bandwidth
    predicted = Roofline().fit(toy_dataset, []).predict_ms(toy_dataset, [position])
    assert predicted == pytest.approx([1e3 * (first + second + gelu)], rel=0.02)


def test_roofline_leaves_out_only_the_launches(toy_dataset):
    for position in (0, 1, 2, 27, 28, 29):
        sample = toy_dataset.samples[position]
        data, device = toy_dataset.graphs[sample.graph], load_device(sample.record.device)
        launches = float((data.count * data.cost[:, 0, COST_COLUMNS.index("kernels")]).sum())
        expected = sample.record.time_ms / (2 if device.kind == "cpu" else 3) - launches * LAUNCH_MS[device.kind]
        assert class_rooflines_ms(toy_dataset, sample).sum() == pytest.approx(expected, rel=1e-6)


def test_calibration_takes_the_median_ratio_of_the_file(toy_dataset):
    baseline = CalibratedRoofline().fit(toy_dataset, TRAIN)
    raw = Roofline().predict_ms(toy_dataset, EVERY)
    measured = _measured(toy_dataset, EVERY)
    predicted = baseline.predict_ms(toy_dataset, EVERY)
    for file in {s.record.source_file for s in toy_dataset.samples}:
        rows = [p for p in EVERY if toy_dataset.samples[p].record.source_file == file]
        ratio = np.median([measured[p] / raw[p] for p in rows if p in TRAIN])
        assert predicted[rows] == pytest.approx(ratio * raw[rows])


def test_calibration_of_an_unseen_file_takes_the_median_of_all(toy_dataset):
    file = toy_dataset.samples[0].record.source_file
    unseen = [p for p in EVERY if toy_dataset.samples[p].record.source_file == file]
    train = [p for p in EVERY if p not in unseen]
    baseline = CalibratedRoofline().fit(toy_dataset, train)
    ratio = np.median(_measured(toy_dataset, train) / Roofline().predict_ms(toy_dataset, train))
    expected = ratio * Roofline().predict_ms(toy_dataset, unseen)
    assert baseline.predict_ms(toy_dataset, unseen) == pytest.approx(expected)


def test_log_linear_recovers_a_power_law(toy_dataset, monkeypatch):
    baseline = LogLinear()
    inputs = baseline._inputs(toy_dataset, EVERY)
    law = np.exp(inputs @ np.array([-9.0, 0.5, 0.3, 0.1]))
    monkeypatch.setattr("gnnperf.baselines._measured_ms", lambda dataset, positions: law[list(positions)])
    monkeypatch.setattr(LogLinear, "MIN_ROWS", 5)
    assert baseline.fit(toy_dataset, TRAIN).predict_ms(toy_dataset, HELD) == pytest.approx(law[HELD], rel=1e-4)


def test_aggregates_have_a_name_each_and_are_finite(toy_dataset):
    values = aggregate(toy_dataset, toy_dataset.samples[0])
    assert values.shape == (len(AGGREGATES),) and len(set(AGGREGATES)) == len(AGGREGATES)
    assert np.isfinite(values).all()
    named = dict(zip(AGGREGATES, values, strict=True))
    assert named["conv_count"] == 2 and named["count_relu"] == 1 and named["count_linear"] == 0
    shares = sum(
        value for name, value in named.items() if name.endswith("_share") and name[:-6] + "_log_flops" in named
    )
    assert shares == pytest.approx(1)
    assert named["other_conv_count"] == 2 and named["pointwise_count"] == named["depthwise_count"] == 0


def test_boosting_is_deterministic_and_follows_its_seed(toy_dataset, monkeypatch):
    monkeypatch.setattr(GradientBoosting, "ROUNDS", 20)
    monkeypatch.setitem(GradientBoosting.PARAMETERS, "min_data_in_leaf", 2)
    one, two, other = (
        GradientBoosting(seed).fit(toy_dataset, TRAIN, HELD).predict_ms(toy_dataset, HELD) for seed in (0, 0, 1)
    )
    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_predicts_what_is_asked_in_its_order(toy_dataset, name, monkeypatch):
    monkeypatch.setattr(GradientBoosting, "ROUNDS", 20)
    baseline = BASELINES[name]().fit(toy_dataset, TRAIN, HELD)
    predicted = baseline.predict_ms(toy_dataset, HELD)
    assert predicted.shape == (len(HELD),) and (predicted > 0).all()
    assert baseline.predict_ms(toy_dataset, HELD[::-1])[::-1] == pytest.approx(predicted)
    assert baseline.predict_ms(toy_dataset, []).shape == (0,)


@pytest.mark.parametrize("baseline", [CalibratedRoofline, LogLinear, GradientBoosting])
def test_nothing_to_fit_to_is_an_error(toy_dataset, baseline):
    with pytest.raises(ValueError, match="no training rows"):
        baseline().fit(toy_dataset, [])
