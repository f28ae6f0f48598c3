import numpy as np
import pytest

from gnnperf.calibration import fit_calibration

DEVICES = ("small-card", "large-card", "cpu")


@pytest.fixture
def predictions():
    """400 networks: predicted times for a new device, (400,), and for the three known ones, (400, 3)."""
    random = np.random.default_rng(0)
    size = np.exp(random.normal(3, 1, 400))
    others = size[:, None] * np.exp(random.normal(0, 0.4, (400, 3))) * [3.0, 1.0, 20.0]
    own = size * np.exp(random.normal(0, 0.1, 400))
    return own, others


def _error(calibration, own, others, measured, after):
    ratio = calibration.calibrate_ms(own[after:], others[after:]) / measured[after:]
    return float(np.abs(np.log(ratio)).mean())


def test_one_measurement_moves_all_alike(predictions):
    own, others = predictions
    calibration = fit_calibration(DEVICES, own[:1], others[:1], 1.3 * own[:1])
    moved = calibration.calibrate_ms(own, others) / own
    assert moved[0] == pytest.approx(1.3, rel=0.05)
    assert np.abs(np.log(moved / 1.3)).mean() < 0.25


def test_a_device_that_is_a_mixture_of_others_is_found(predictions):
    own, others = predictions
    measured = own**0.4 * others[:, 0] ** 0.6 * np.exp(np.random.default_rng(1).normal(0, 0.02, len(own)))
    errors = [
        _error(fit_calibration(DEVICES, own[:n], others[:n], measured[:n]), own, others, measured, 30)
        for n in (3, 10, 30)
    ]
    uncalibrated = float(np.abs(np.log(own[30:] / measured[30:])).mean())
    assert uncalibrated > 0.5 and errors[2] < errors[1] < errors[0] < uncalibrated
    assert errors[2] < 0.03
    found = fit_calibration(DEVICES, own[:30], others[:30], measured[:30])
    assert found.weights == pytest.approx([0.6, 0, 0], abs=0.05)


def test_scatter_alone_is_not_taken_for_a_mixture(predictions):
    own, others = predictions
    measured = 0.8 * own * np.exp(np.random.default_rng(2).normal(0, 0.1, len(own)))
    calibrated = _error(fit_calibration(DEVICES, own[:10], others[:10], measured[:10]), own, others, measured, 10)
    shift = np.log(measured[:10] / own[:10]).mean()
    offset_alone = float(np.abs(np.log(own[10:] / measured[10:]) + shift).mean())
    assert calibrated < 1.15 * offset_alone


def test_without_other_devices_there_is_an_offset(predictions):
    own, _ = predictions
    calibration = fit_calibration((), own[:20], np.empty((20, 0)), 2 * own[:20])
    assert calibration.offset == pytest.approx(np.log(2), rel=0.01)
    np.testing.assert_allclose(calibration.calibrate_ms(own, np.empty((400, 0))), 2 * own, rtol=0.01)


@pytest.mark.parametrize(
    "own,others,measured,message",
    [
        ([], np.empty((0, 3)), [], "0 measurements"),
        ([1.0], [[1.0, 2.0]], [1.0], "3 devices"),
        ([1.0, 2.0], [[1.0, 2.0, 3.0]] * 2, [1.0], "1 measurements"),
        ([1.0], [[1.0, 2.0, 3.0]], [0.0], "above zero"),
        ([1.0], [[1.0, np.inf, 3.0]], [1.0], "above zero"),
    ],
)
def test_what_cannot_be_learned_from_is_one_line(own, others, measured, message):
    with pytest.raises(ValueError, match=message) as raised:
        fit_calibration(DEVICES, own, others, measured)
    assert "\n" not in str(raised.value)
