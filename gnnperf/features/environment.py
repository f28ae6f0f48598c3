"""The device and the software as tensors."""

from __future__ import annotations

import math

import torch

from gnnperf.cost.roofline import LAUNCH_MS
from gnnperf.hardware import FRAMEWORKS, KINDS, PRECISIONS, Device, Software

_RATES = (
    ("fp64", False),
    ("fp32", False),
    ("fp16", False),
    ("tf32", True),
    ("fp16", True),
    ("bf16", True),
    ("int8", True),
)
_VENDORS = ("nvidia", "amd", "intel", "apple")
# Of a device whose sheet does not tell; the model is told that it is not known.
_ASSUMED_CACHE_BYTES = 4e6
DEVICE_FEATURES = (
    *(f"log_{precision}_{'matrix' if matrix else 'vector'}_rate" for precision, matrix in _RATES),
    "log_bandwidth",
    "log_balance",
    "log_memory",
    "log_cache",
    "cache_unknown",
    "log_units",
    "log_clock",
    "year",
    *KINDS,
    *_VENDORS,
)
SOFTWARE_FEATURES = (*FRAMEWORKS, "release", "since_2", "compiled", "channels_last", "decomposed_attention")


def device_features(device: Device) -> torch.Tensor:
    """(``DEVICE_FEATURES``,) float: the spec sheet on logarithmic scales around a present GPU."""
    rates = [math.log10(device.peak_flops_per_s(p, matrix) / 1e13) for p, matrix in _RATES]
    bandwidth = device.memory_bandwidth_bytes_per_s
    cache = device.l2_cache_bytes
    values = [
        *rates,
        math.log10(bandwidth / 1e12),
        math.log10(device.peak_flops_per_s("fp32", False) / bandwidth / 10),
        math.log10(device.memory_bytes / 1e10),
        math.log10((cache or _ASSUMED_CACHE_BYTES) / 1e7),
        float(cache is None),
        math.log10(device.units / 50),
        math.log10(device.clock_hz / 1e9),
        ((device.year or 2018) - 2018) / 5,
        *(float(device.kind == kind) for kind in KINDS),
        *(float(device.vendor == vendor) for vendor in _VENDORS),
    ]
    return torch.tensor(values, dtype=torch.float32)


def software_features(software: Software) -> torch.Tensor:
    """(``SOFTWARE_FEATURES``,) float."""
    major, minor = software.release
    values = [
        *(float(software.framework == framework) for framework in FRAMEWORKS),
        (major + minor / 15 - 2) if software.framework == "torch" else 0.0,
        float(software.framework == "torch" and major >= 2),
        float(software.compiled),
        float(software.memory_format == "channels_last"),
        float(software.attention == "decomposed"),
    ]
    return torch.tensor(values, dtype=torch.float32)


def device_rates(device: Device) -> torch.Tensor:
    """What rooflines need: (2 * precisions + 4,) float64.

    FLOPs per second by precision on vector, then on matrix units; bytes per second; launch in ms; units; cache bytes.
    """
    rates = [device.peak_flops_per_s(p, matrix) for matrix in (False, True) for p in PRECISIONS]
    cache_bytes = device.l2_cache_bytes or _ASSUMED_CACHE_BYTES
    rest = [device.memory_bandwidth_bytes_per_s, LAUNCH_MS[device.kind], device.units, cache_bytes]
    return torch.tensor([*rates, *rest], dtype=torch.float64)
