"""Devices as their spec sheets, the links between them, and the software that runs on them."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import reprlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

KINDS = ("gpu", "cpu", "accelerator")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")
VECTOR_PRECISIONS = ("fp64", "fp32", "fp16", "bf16")
MATRIX_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
FRAMEWORKS = ("torch", "onnxruntime", "tensorflow")
MEMORY_FORMATS = ("channels_first", "channels_last")
ATTENTION_IMPLEMENTATIONS = ("fused", "decomposed")
DEFAULT_VERSIONS = {"torch": "2.9", "onnxruntime": "1.23", "tensorflow": "2.20"}

CATALOGUE_FOLDER = Path(__file__).with_name("devices")
MAX_FILE_BYTES = 1_000_000
REQUIRED = ("kind", "units", "clock_hz", "vector_flops_per_s", "memory_bandwidth_bytes_per_s", "memory_bytes")
TEXTS = ("id", "name", "vendor", "kind", "architecture")

# Plausible range and unit of every number: a value outside of it is nearly always in another unit, such as GB/s.
NUMBERS: dict[str, tuple[float, float, str]] = {
    "year": (1980, 2100, "a calendar year"),
    "power_watts": (0.1, 1e5, "watts"),
    "units": (1, 1e6, "multiprocessors, compute units or cores"),
    "clock_hz": (1e7, 1e11, "hertz"),
    "memory_bandwidth_bytes_per_s": (1e8, 1e15, "bytes per second"),
    "memory_bytes": (1e6, 1e14, "bytes"),
    "l2_cache_bytes": (1e3, 1e11, "bytes"),
}
WHOLE_NUMBERS = ("year", "units", "memory_bytes", "l2_cache_bytes")
RATES: dict[str, tuple[str, ...]] = {
    "vector_flops_per_s": VECTOR_PRECISIONS,
    "matrix_flops_per_s": MATRIX_PRECISIONS,
}
RATE_RANGE = (1e8, 1e19, "operations per second")
LINK_NUMBERS: dict[str, tuple[float, float, str]] = {
    "bandwidth_bytes_per_s": (1e6, 1e15, "bytes per second"),
    "latency_s": (1e-9, 1.0, "seconds"),
}
FIELDS = (*TEXTS, *NUMBERS, *RATES, "link", "sources")

# PCI Express Base Specification: giga-transfers per second and lane, and the share that its encoding leaves for data.
PCIE_LANE_BITS_PER_S = {
    "1.0": 2.5e9 * 8 / 10,
    "2.0": 5e9 * 8 / 10,
    "3.0": 8e9 * 128 / 130,
    "4.0": 16e9 * 128 / 130,
    "5.0": 32e9 * 128 / 130,
}
# Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018: reading 64 bytes takes
# 0.5-1 us on PCIe 3.0 hosts; taken for the other generations too. What a framework adds to start a copy is not in it.
PCIE_LATENCY_S = 1e-6


@dataclass(frozen=True)
class Link:
    """What joins a device to its host.

    Attributes:
        name: For people, such as ``PCIe 4.0 x16``.
        bandwidth_bytes_per_s: Peak of one direction, after line encoding.
        latency_s: Time until the first byte of a transfer.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class Device:
    """A device as its spec sheet tells it; ``None`` is a number that is not known, never zero.

    A multiply-add counts as 2 FLOPs. A board with two chips is described by one of them, as frameworks see it.

    Attributes:
        id: Kebab-case name in the catalogue, or a user file's name without its suffix.
        name: What the vendor calls it.
        vendor: ``nvidia``, ``amd``, ``intel``, ``apple`` and so on; ``unknown`` if not given.
        kind: One of ``KINDS``.
        architecture: Kebab-case family, such as ``ampere`` or ``rdna3``; ``unknown`` if not given.
        units: Streaming multiprocessors, compute units or CPU cores.
        clock_hz: Boost clock of a GPU; turbo clock of a CPU (its file says which).
        vector_flops_per_s: Peak by precision outside of the matrix units, for precisions that the hardware has.
        matrix_flops_per_s: Dense peak by precision of the matrix units; empty without such units.
        memory_bandwidth_bytes_per_s: Peak of the device's own memory; of all channels populated for a CPU.
        memory_bytes: Capacity of that memory; for a CPU the host's memory that its file assumes.
        l2_cache_bytes: Size of the last-level cache: L2 of most GPUs, L3 of CPUs, AMD's Infinity Cache.
        year: When it came out.
        power_watts: Board power of a GPU, base power of a CPU.
        link: To the host; ``None`` for a CPU, which is the host, and where unknown.
        sources: For every field that holds numbers, the document that they come from.
    """

    id: str
    name: str
    vendor: str
    kind: str
    architecture: str
    units: int
    clock_hz: float
    vector_flops_per_s: dict[str, float] = field(hash=False)
    matrix_flops_per_s: dict[str, float] = field(hash=False)
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    l2_cache_bytes: int | None = None
    year: int | None = None
    power_watts: float | None = None
    link: Link | None = None
    sources: dict[str, str] = field(default_factory=dict, hash=False)

    def peak_flops_per_s(self, precision: str, matrix: bool) -> float:
        """Highest rate at which the device computes in a precision.

        A precision that the hardware lacks runs at the fp32 vector rate, and so does a 16-bit one whose own vector
        rate is lower (Pascal's fp16), because frameworks convert to fp32 there. fp32 never uses tf32 units; tf32
        where there are no such units is fp32.

        Args:
            precision: One of ``PRECISIONS``.
            matrix: Whether the op is a matmul or convolution, which may use the matrix units.

        Returns:
            FLOPs per second (operations for int8).

        Raises:
            ValueError: If the precision is unknown.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}")
        if matrix and precision in self.matrix_flops_per_s:
            return self.matrix_flops_per_s[precision]
        if precision == "tf32":
            return self.peak_flops_per_s("fp32", matrix)
        fp32 = self.vector_flops_per_s["fp32"]
        rate = self.vector_flops_per_s.get(precision, fp32)
        return max(rate, fp32) if precision in ("fp16", "bf16") else rate


@dataclass(frozen=True)
class Software:
    """What runs the network.

    Attributes:
        framework: One of ``FRAMEWORKS``.
        version: The framework's, such as ``2.9``, ``2.9.1`` or ``2.9.1+cu128``; empty for the one in
            ``DEFAULT_VERSIONS``, which then takes its place.
        compiled: Whether a compiler (``torch.compile``, XLA) fuses ops.
        memory_format: One of ``MEMORY_FORMATS``, the layout of images.
        attention_implementation: One of ``ATTENTION_IMPLEMENTATIONS``, or ``None`` for the framework's default.

    Raises:
        ValueError: If a field has a value that is not allowed.
    """

    framework: str = "torch"
    version: str = ""
    compiled: bool = False
    memory_format: str = "channels_first"
    attention_implementation: str | None = None

    def __post_init__(self) -> None:
        _one_of("framework", self.framework, FRAMEWORKS)
        _one_of("memory_format", self.memory_format, MEMORY_FORMATS)
        if self.attention_implementation is not None:
            _one_of("attention_implementation", self.attention_implementation, (*ATTENTION_IMPLEMENTATIONS, None))
        if not isinstance(self.compiled, bool):
            raise ValueError(f"compiled must be True or False, not {_short(self.compiled)}")
        if self.version == "":
            object.__setattr__(self, "version", DEFAULT_VERSIONS[self.framework])
        if not isinstance(self.version, str) or not re.fullmatch(
            r"\d{1,4}\.\d{1,4}([.+][0-9A-Za-z][0-9A-Za-z.+_-]*)?", self.version
        ):
            raise ValueError(
                f"version must be a string such as {DEFAULT_VERSIONS[self.framework]!r}, not {_short(self.version)}"
            )
        if self.compiled and self.framework == "torch" and self.release < (2, 0):
            raise ValueError(f"compiled needs torch 2.0 or later, not {self.version}: torch.compile came with 2.0")

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = re.findall(r"\d+", self.version)[:2]
        return int(major), int(minor)

    @property
    def attention(self) -> str:
        """The attention implementation that runs: torch fuses by default since 2.0, the other frameworks do not."""
        if self.attention_implementation is not None:
            return self.attention_implementation
        return "fused" if self.framework == "torch" and self.release >= (2, 0) else "decomposed"


@cache
def device_ids() -> tuple[str, ...]:
    """Ids of the catalogue, sorted; reads no file."""
    return tuple(sorted(path.stem for path in CATALOGUE_FOLDER.glob("*.yaml")))


@cache
def catalogue() -> dict[str, Device]:
    """Every device of the catalogue by its id, sorted; read once."""
    return {device_id: _load_catalogued(device_id) for device_id in device_ids()}


def load_device(device: str | Path | Device) -> Device:
    """A device of the catalogue or of a user's own file.

    Args:
        device: An id of the catalogue; or a file of the catalogue's form, recognised by being a ``Path``, by a path
            separator, or by ending in ``.yaml``, ``.yml`` or ``.json``; or a device, returned as it is. A file needs
            the fields in ``REQUIRED`` only; numbers that it leaves out are unknown, and without
            ``matrix_flops_per_s`` the device has no matrix units.

    Raises:
        ValueError: If there is no such device, or the file cannot be read or is wrong, with the field at fault.
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, Path):
        return _read_device(device)
    if not isinstance(device, str) or not device:
        raise ValueError(f"a device is an id or a file, not {_short(device)}; `gnnperf devices` lists the ids")
    separators = {os.sep, os.altsep or os.sep}
    if device.lower().endswith((".yaml", ".yml", ".json")) or any(separator in device for separator in separators):
        return _read_device(Path(device))
    if device not in device_ids():
        near = _did_you_mean(device, device_ids()) or ":"
        raise ValueError(
            f"unknown device {_short(device)}{near} `gnnperf devices` lists all; a YAML file of your own works too"
        )
    return _load_catalogued(device)


@cache
def _load_catalogued(device_id: str) -> Device:
    return _read_device(CATALOGUE_FOLDER / f"{device_id}.yaml")


def _read_device(path: Path) -> Device:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot read device file {str(path)!r}: {reason}") from error
    try:
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes, which no device file is")
        return _parse_device(_parse_text(content.decode("utf-8"), path), path.stem)
    except UnicodeDecodeError as error:
        raise ValueError(f"device file {str(path)!r}: not UTF-8 text") from error
    except ValueError as error:
        raise ValueError(f"device file {str(path)!r}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without duplicate and merge keys; in Python, so that deep nesting ends in an exception."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping; raises a ``ValueError`` if a key repeats or merges another mapping."""
        _check_keys([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        return super().construct_mapping(node, deep)


def _check_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key, _ in pairs:
        if key == "<<":
            raise ValueError("merge keys (<<) are not supported: write the fields out")
        if key in seen:
            raise ValueError(f"{_short(key)} is given twice")
        seen.add(key)
    return dict(pairs)


def _parse_text(text: str, path: Path) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=_check_keys)
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
    content = _mapping("a device", content, FIELDS)
    for key in REQUIRED:
        if key not in content:
            raise ValueError(f"the field {key!r} is missing; needed are {', '.join(REQUIRED)}")
    values: dict[str, Any] = {"id": stem, "vendor": "unknown", "architecture": "unknown", "matrix_flops_per_s": {}}
    for key, value in content.items():
        if key in TEXTS:
            values[key] = _text(key, value)
        elif key in NUMBERS:
            values[key] = _number(key, value, NUMBERS[key], whole=key in WHOLE_NUMBERS)
        elif key in RATES:
            rates = _mapping(key, value, RATES[key])
            values[key] = {name: _number(f"{key}.{name}", rate, RATE_RANGE) for name, rate in rates.items()}
    values.setdefault("name", values["id"])
    _one_of("kind", values["kind"], KINDS)
    if "fp32" not in values["vector_flops_per_s"]:
        raise ValueError("the field 'vector_flops_per_s.fp32' is missing; every device needs it")
    link = _link(content["link"]) if "link" in content else None
    return Device(**values, link=link, sources=_sources(content.get("sources", {})))


def _link(value: Any) -> Link:
    """A link from ``PCIe <generation> x<lanes>``, or from a mapping with the fields of ``Link``."""
    if isinstance(value, str):
        match = re.fullmatch(r"PCIe (\d\.0) x(1|2|4|8|16)", value)
        if not match or match[1] not in PCIE_LANE_BITS_PER_S:
            raise ValueError(f"link must be such as 'PCIe 4.0 x16' or give {', '.join(LINK_NUMBERS)}, not {value!r}")
        return Link(value, PCIE_LANE_BITS_PER_S[match[1]] / 8 * int(match[2]), PCIE_LATENCY_S)
    content = _mapping("link", value, ("name", *LINK_NUMBERS))
    for key in LINK_NUMBERS:
        if key not in content:
            raise ValueError(f"the field 'link.{key}' is missing")
    numbers = {key: _number(f"link.{key}", content[key], limits) for key, limits in LINK_NUMBERS.items()}
    return Link(_text("link.name", content.get("name", "link")), **numbers)


def _sources(value: Any) -> dict[str, str]:
    """The source of every field, from a mapping of every source to its fields."""
    if not isinstance(value, dict):
        raise ValueError(f"sources must map every document to a list of fields, not {_short(value)}")
    sources: dict[str, str] = {}
    for document, names in value.items():
        if not isinstance(document, str) or not isinstance(names, list):
            raise ValueError(f"sources must map every document to a list of fields, not {_short(document)}")
        for name in names:
            _one_of("a field in sources", name, FIELDS)
            sources[name] = f"{sources[name]}; {document}" if name in sources else document
    return sources


def _mapping(what: str, value: Any, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a mapping of {', '.join(allowed)}, not {_short(value)}")
    for key in value:
        if key not in allowed:
            known = "" if _did_you_mean(key, allowed) else f"; known are {', '.join(allowed)}"
            raise ValueError(f"{what} has the unknown field {_short(key)}{_did_you_mean(key, allowed)}{known}")
    return value


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{what} must be a line of text, not {_short(value)}")
    return value


def _number(what: str, value: Any, limits: tuple[float, float, str], whole: bool = False) -> Any:
    """A finite number within its limits; text such as ``1e12``, which YAML does not take for a number, is one too."""
    low, high, unit = limits
    if isinstance(value, str):
        try:
            value = int(value) if re.fullmatch(r"\d{1,20}", value) else float(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number ({unit}), not {_short(value)}")
    if not low <= value <= high:  # also false for nan
        problem = "" if 0 < value < math.inf else "positive and finite, "
        raise ValueError(f"{what} must be {problem}in {unit} between {low:g} and {high:g}, not {_short(value)}")
    if not whole:
        return float(value)
    if value != int(value):
        raise ValueError(f"{what} must be a whole number ({unit}), not {_short(value)}")
    return int(value)


def _one_of(what: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(str, allowed))}, not {_short(value)}")


def _did_you_mean(value: Any, allowed: tuple[str, ...]) -> str:
    text = value.lower().replace("_", "-") if isinstance(value, str) else ""
    plain = {item.lower().replace("_", "-"): item for item in allowed}
    near = difflib.get_close_matches(text[:100], plain, n=3, cutoff=0.6)
    return f": did you mean {', '.join(plain[item] for item in near)}?" if near else ""


def _short(value: Any) -> str:
    """What the user wrote, short enough for one line."""
    short = reprlib.Repr()
    short.maxstring, short.maxlevel, short.maxdict, short.maxlist = 80, 2, 4, 4
    return short.repr(value)
