"""Devices as their spec sheets, the links between them, and the software that runs on them."""

from gnnperf.hardware.device import KINDS, MATRIX_PRECISIONS, PRECISIONS, VECTOR_PRECISIONS, Device, Link
from gnnperf.hardware.device_catalogue import CATALOGUE_FOLDER, catalogue, device_ids, load_device
from gnnperf.hardware.software import (
    ATTENTION_IMPLEMENTATIONS,
    DEFAULT_VERSIONS,
    FRAMEWORKS,
    MEMORY_FORMATS,
    Software,
)

__all__ = [
    "ATTENTION_IMPLEMENTATIONS",
    "CATALOGUE_FOLDER",
    "DEFAULT_VERSIONS",
    "FRAMEWORKS",
    "KINDS",
    "MATRIX_PRECISIONS",
    "MEMORY_FORMATS",
    "PRECISIONS",
    "VECTOR_PRECISIONS",
    "Device",
    "Link",
    "Software",
    "catalogue",
    "device_ids",
    "load_device",
]
