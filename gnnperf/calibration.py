"""What a few measured networks tell of a device: how it departs from its prediction, as other devices do.

The logarithm of measured over predicted time is taken as an offset, which all networks share, plus a mixture of how the
predictions for other devices differ from that for this one: where it behaves more like another card than its spec
sheet says, the mixture leans there. Both have normal priors around nothing, so that no measurement changes nothing, one
moves all predictions together, and many find the mixture. (Bayesian linear regression, Bishop, "Pattern Recognition and
Machine Learning", 3.3; how noisy and how mixed a device is, is averaged over by evidence, 3.4.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gnnperf.metrics import Array

# Of a log ratio: of spec sheets that flatter, of what networks scatter, and of the mixture as a whole.
_OFFSET_DEVIATION = 0.5
_NOISE_DEVIATIONS = (0.01, 0.02, 0.05, 0.1, 0.2)
_MIXTURE_DEVIATIONS = (0.0, 0.3, 1.0, 3.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How a device departs from its prediction.

    Attributes:
        devices: P ids of the devices that it is compared with.
        offset: Logarithm of measured over predicted time that all networks share.
        weights: (P,), how much of each device's difference there is in this one.
    """

    devices: tuple[str, ...]
    offset: float
    weights: Array

    def log_ratio(self, own_ms: Array, others_ms: Array) -> Array:
        """Logarithm of time over prediction, (N,).

        Args:
            own_ms: (N,) predictions of networks for this device.
            others_ms: (N, P) predictions of the same networks for ``devices``.
        """
        return self.offset + _differences(own_ms, others_ms) @ self.weights

    def calibrate_ms(self, own_ms: Array, others_ms: Array) -> Array:
        """Predictions set right, (N,) in ms; arguments as of ``log_ratio``."""
        return np.asarray(own_ms) * np.exp(self.log_ratio(own_ms, others_ms))


def fit_calibration(devices: Sequence[str], own_ms: Array, others_ms: Array, measured_ms: Array) -> Calibration:
    """Learn from N measured networks.

    Args:
        devices: P ids of other devices.
        own_ms: (N,) predictions for this device.
        others_ms: (N, P) predictions for ``devices``.
        measured_ms: (N,) what was measured on this device.

    Raises:
        ValueError: If there is no measurement, shapes differ, or a time is not positive and finite.
    """
    own_ms, others_ms, measured_ms = (np.asarray(a, dtype=np.float64) for a in (own_ms, others_ms, measured_ms))
    if not len(measured_ms) or own_ms.shape != measured_ms.shape or others_ms.shape != (len(own_ms), len(devices)):
        raise ValueError(
            f"a calibration needs a prediction of each measured network for every device: {len(measured_ms)} "
            f"measurements, predictions {own_ms.shape} and {others_ms.shape}, {len(devices)} devices"
        )
    for times in (own_ms, others_ms, measured_ms):
        if not (np.isfinite(times) & (times > 0)).all():
            raise ValueError("a calibration needs times above zero")
    residual = np.log(measured_ms / own_ms)
    columns = np.column_stack([np.ones(len(residual)), _differences(own_ms, others_ms)])
    fits = [_fit(columns, residual, *deviations) for deviations in product(_NOISE_DEVIATIONS, _MIXTURE_DEVIATIONS)]
    evidence = np.array([log_evidence for log_evidence, _ in fits])
    share = np.exp(evidence - evidence.max())
    coefficients = share @ np.array([mean for _, mean in fits]) / share.sum()
    return Calibration(tuple(devices), float(coefficients[0]), coefficients[1:])


def _differences(own_ms: Array, others_ms: Array) -> Array:
    return np.log(np.asarray(others_ms)) - np.log(np.asarray(own_ms))[:, None]


def _fit(columns: Array, residual: Array, noise: float, mixture: float) -> tuple[float, Array]:
    """Logarithm of the evidence, but for a constant, and the mean of the coefficients, (1 + P,)."""
    variances = np.full(columns.shape[1], mixture**2 / max(1, columns.shape[1] - 1))
    variances[0] = _OFFSET_DEVIATION**2
    covariance = (columns * variances) @ columns.T + noise**2 * np.eye(len(residual))
    solved = np.linalg.solve(covariance, residual)
    log_evidence = -0.5 * (residual @ solved + np.linalg.slogdet(covariance)[1])
    return float(log_evidence), variances * (columns.T @ solved)
