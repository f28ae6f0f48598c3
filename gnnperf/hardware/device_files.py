"""Files that describe a device: YAML or JSON, every field checked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from gnnperf.files import read_text, unique_keys
from gnnperf.hardware.checks import line_of_text, mapping, number, one_of, short
from gnnperf.hardware.device import KINDS, MATRIX_PRECISIONS, VECTOR_PRECISIONS, Device, Link

MAX_FILE_BYTES = 1_000_000
REQUIRED = ("kind", "units", "clock_hz", "vector_flops_per_s", "memory_bandwidth_bytes_per_s", "memory_bytes")
TEXTS = ("id", "name", "vendor", "kind", "architecture")

# Plausible range and unit of every number: a value outside of it is nearly always in another unit, such as GB/s.
NUMBERS: dict[str, tuple[float, float, str]] = {
    "year": (1980, 2100, "a calendar year"),
    "power_watts": (0.1, 1e5, "watts"),
    "units": (1, 1e6, "multiprocessors, compute units or cores"),
    "clock_hz": (1e7, 1e11, "hertz"),
    "base_clock_hz": (1e7, 1e11, "hertz"),
    "memory_bandwidth_bytes_per_s": (1e8, 1e15, "bytes per second"),
    "memory_bytes": (1e6, 1e14, "bytes"),
    "memory_bus_bits": (8, 1e6, "bits"),
    "memory_transfer_rate_per_s": (1e6, 1e12, "transfers per second"),
    "l2_cache_bytes": (1e3, 1e11, "bytes"),
    "list_price_usd": (1, 1e7, "US dollars"),
}
WHOLE_NUMBERS = ("year", "units", "memory_bytes", "memory_bus_bits", "l2_cache_bytes")
RATES: dict[str, tuple[str, ...]] = {
    "vector_flops_per_s": VECTOR_PRECISIONS,
    "matrix_flops_per_s": MATRIX_PRECISIONS,
}
RATE_RANGE = (1e8, 1e19, "operations per second")
LINK_NUMBERS: dict[str, tuple[float, float, str]] = {
    "bandwidth_bytes_per_s": (1e6, 1e15, "bytes per second"),
    "latency_s": (1e-9, 1.0, "seconds"),
}
LINKS = ("link", "peer_link")
FIELDS = (*TEXTS, *NUMBERS, *RATES, *LINKS, "sources")

# PCI Express Base Specification: giga-transfers per second and lane, and the share that its encoding leaves for data
# (of 6.0 the 236 bytes of packets in a flit of 256).
PCIE_LANE_BITS_PER_S = {
    "1.0": 2.5e9 * 8 / 10,
    "2.0": 5e9 * 8 / 10,
    "3.0": 8e9 * 128 / 130,
    "4.0": 16e9 * 128 / 130,
    "5.0": 32e9 * 128 / 130,
    "6.0": 64e9 * 236 / 256,
}
# Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018: reading 64 bytes takes
# 0.5-1 us on PCIe 3.0 hosts; taken for the other generations too. What a framework adds to start a copy is not in it.
PCIE_LATENCY_S = 1e-6
# A device that works in the host's memory needs no copy: it reads at its own bandwidth, and the first byte takes one
# access to DRAM, about 100 ns: A. Frumusanu, "The 2020 Mac Mini unleashed", AnandTech 2020, measures 97 ns on the M1.
UNIFIED_MEMORY = "unified memory"
UNIFIED_MEMORY_LATENCY_S = 1e-7


def read_device(path: Path) -> Device:
    """A device from a file, named by the file unless it says otherwise.

    Raises:
        ValueError: If the file cannot be read or is wrong, with the field at fault.
    """
    text = read_text(path, "device file", MAX_FILE_BYTES)
    try:
        return _parse_device(_parse_text(text, path), path.stem)
    except ValueError as error:
        raise ValueError(f"device file {str(path)!r}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without duplicate and merge keys; in Python, so that deep nesting ends in an exception."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping; raises a ``ValueError`` if a key repeats or merges another mapping."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if "<<" in keys:
            raise ValueError("merge keys (<<) are not supported: write the fields out")
        unique_keys([(key, None) for key in keys])
        return super().construct_mapping(node, deep)


def _parse_text(text: str, path: Path) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=unique_keys)
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"not valid YAML{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from error


def _parse_device(content: Any, stem: str) -> Device:
    content = mapping("a device", content, FIELDS)
    for key in REQUIRED:
        if key not in content:
            raise ValueError(f"the field {key!r} is missing; needed are {', '.join(REQUIRED)}")
    values: dict[str, Any] = {"id": stem, "vendor": "unknown", "architecture": "unknown", "matrix_flops_per_s": {}}
    for key, value in content.items():
        if key in TEXTS:
            values[key] = line_of_text(key, value)
        elif key in NUMBERS:
            values[key] = number(key, value, NUMBERS[key], whole=key in WHOLE_NUMBERS)
        elif key in RATES:
            rates = mapping(key, value, RATES[key])
            values[key] = {name: number(f"{key}.{name}", rate, RATE_RANGE) for name, rate in rates.items()}
    values.setdefault("name", values["id"])
    one_of("kind", values["kind"], KINDS)
    if "fp32" not in values["vector_flops_per_s"]:
        raise ValueError("the field 'vector_flops_per_s.fp32' is missing; every device needs it")
    bandwidth = values["memory_bandwidth_bytes_per_s"]
    values |= {key: _link(key, content[key], bandwidth) for key in LINKS if key in content}
    return Device(**values, sources=_sources(content.get("sources", {})))


def _link(field: str, value: Any, memory_bandwidth_bytes_per_s: float) -> Link:
    """A link from ``PCIe <generation> x<lanes>`` or ``unified memory``, or from a mapping with ``Link``'s fields."""
    if value == UNIFIED_MEMORY:
        return Link(UNIFIED_MEMORY, memory_bandwidth_bytes_per_s, UNIFIED_MEMORY_LATENCY_S)
    if isinstance(value, str):
        match = re.fullmatch(r"PCIe (\d\.0) x(1|2|4|8|16)", value)
        if not match or match[1] not in PCIE_LANE_BITS_PER_S:
            others = f"{UNIFIED_MEMORY!r}, or give {', '.join(LINK_NUMBERS)}"
            raise ValueError(f"{field} must be such as 'PCIe 4.0 x16', {others}, not {short(value)}")
        return Link(value, PCIE_LANE_BITS_PER_S[match[1]] / 8 * int(match[2]), PCIE_LATENCY_S)
    content = mapping(field, value, ("name", *LINK_NUMBERS))
    for key in LINK_NUMBERS:
        if key not in content:
            raise ValueError(f"the field '{field}.{key}' is missing")
    numbers = {key: number(f"{field}.{key}", content[key], limits) for key, limits in LINK_NUMBERS.items()}
    return Link(line_of_text(f"{field}.name", content.get("name", "link")), **numbers)


def _sources(value: Any) -> dict[str, str]:
    """The source of every field, from a mapping of every source to its fields."""
    if not isinstance(value, dict):
        raise ValueError(f"sources must map every document to a list of fields, not {short(value)}")
    sources: dict[str, str] = {}
    for document, names in value.items():
        if not isinstance(document, str) or not isinstance(names, list):
            raise ValueError(f"sources must map every document to a list of fields, not {short(document)}")
        for name in names:
            one_of("a field in sources", name, FIELDS)
            sources[name] = f"{sources[name]}; {document}" if name in sources else document
    return sources
