"""What hardware cannot be: numbers of the catalogue that do not follow from one another.

What the chips of a family do in a clock is written here a second time, apart from the catalogue, so that a slip in one
of them shows. Sizes of memories and caches follow from nothing; their files say them twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from gnnperf.hardware import Device

RATE_TOLERANCE = 0.03  # of fp32 from units, lanes and clock
RATIO_TOLERANCE = 0.1  # of the other rates: vendors quote some at another clock
BANDWIDTH_TOLERANCE = 0.02
GIB = (1, 2, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 186, 192, 256, 288)
GIB_OF_HOSTS = (*GIB, 512, 768, 1152)
CACHE_BYTES_PER_UNIT = (2**9, 2**23)  # block RAM of an FPGA's multipliers to L3 of CPUs
FP32_PER_BYTE = (0.3, 240)  # least on CPUs of servers, most on accelerators without memory of their own
CORES_TURBO = (1.1, 2.2)  # highest clock of one core over the base clock of all, x86
TURBO_ELSEWHERE = (1, 1.2)


@dataclass(frozen=True)
class Family:
    """What a unit does in a clock, as multiples of fp32 outside of the matrix units.

    Attributes:
        lanes: Multiply-adds in fp32.
        vector: Other precisions outside of the matrix units.
        matrix: Precisions of the matrix units.
    """

    lanes: int
    vector: dict[str, float] = field(default_factory=dict)
    matrix: dict[str, float] = field(default_factory=dict)


def family(lanes: int, vector: dict[str, float], fp16: float = 0, **times_fp16: float) -> Family:
    """A family whose matrix rates are given as multiples of that in fp16; in bf16 it is the same unless given."""
    matrix = {name: fp16 * times for name, times in ({"fp16": 1.0, "bf16": 1.0} | times_fp16).items()}
    return Family(lanes, vector, matrix if fp16 else {})


AMPERE = {"fp64": 1 / 64, "fp16": 1, "bf16": 1}
GA100 = {"fp64": 1 / 2, "fp16": 4, "bf16": 2}
HOPPER = {"fp64": 1 / 2, "fp16": 2, "bf16": 2}
TURING = {"fp64": 1 / 32, "fp16": 2}
ORIN = family(128, {"fp16": 2}, 8, tf32=1 / 2, int8=2)
HALF, FULL = {"tf32": 1 / 2, "int8": 4.0}, {"tf32": 1 / 2, "int8": 2.0}  # GeForce halves 16 bits that fp32 accumulates

# The first pattern that fits the beginning of "architecture id" says the family.
FAMILIES: dict[str, Family] = {
    "kepler ": family(192, {"fp64": 1 / 3}),
    "maxwell jetson": family(128, {"fp64": 1 / 32, "fp16": 2}),
    "maxwell ": family(128, {"fp64": 1 / 32}),
    "pascal p100": family(64, {"fp64": 1 / 2, "fp16": 2}),
    "pascal jetson": family(128, {"fp64": 1 / 32, "fp16": 2}),
    "pascal ": family(128, {"fp64": 1 / 32, "fp16": 1 / 64}),
    "volta ": family(64, {"fp64": 1 / 2, "fp16": 2}, 8, int8=2),
    "turing gtx": family(64, TURING),
    "turing rtx": family(64, TURING, 4, int8=4),
    "turing ": family(64, TURING, 8, int8=2),
    "ampere a(100|30)": family(64, GA100, 16, fp64=1 / 16, **FULL),
    "ampere a10g": family(128, AMPERE, 2, **FULL),
    "ampere jetson": ORIN,
    "ampere rtx-3": family(128, AMPERE, 2, **HALF),
    "ampere (a|rtx-a)": family(128, AMPERE, 4, **FULL),
    "ada l(20|40)$": family(128, AMPERE, 2, fp8=2, **FULL),
    "ada rtx-40[6-9]0": family(128, AMPERE, 2, fp8=2, **HALF),
    "ada ": family(128, AMPERE, 4, fp8=2, **FULL),
    "hopper ": family(128, HOPPER, 14.4, fp64=1 / 14.4, fp8=2, **FULL),
    "blackwell b300": family(128, HOPPER | {"fp64": 1 / 60}, 30, fp64=1 / 1800, fp8=2, tf32=1 / 2),
    "blackwell g?b200": family(128, HOPPER, 30, fp64=1 / 60, fp8=2, **FULL),
    "blackwell rtx-50": family(128, AMPERE, 2, fp8=2, **HALF),
    "blackwell rtx-pro": family(128, AMPERE, 4, fp8=2, **FULL),
    "gcn5 mi": family(64, {"fp64": 1 / 2, "fp16": 2}),
    "gcn5 radeon": family(64, {"fp64": 1 / 4, "fp16": 2}),
    "cdna1 ": family(64, {"fp64": 1 / 2, "fp16": 2}, 8, fp32=1 / 4, bf16=1 / 2, int8=1),
    "cdna2 ": family(64, {"fp64": 1, "fp16": 2}, 8, fp64=1 / 4, fp32=1 / 4, int8=1),
    "cdna3 ": family(128, {"fp64": 1 / 2}, 8, fp64=1 / 8, fp32=1 / 8, tf32=1 / 2, fp8=2, int8=2),
    "cdna4 ": family(128, {"fp64": 1 / 2}, 16, fp64=1 / 32, fp32=1 / 16, fp8=2, int8=2),
    "rdna[12] ": family(64, {"fp64": 1 / 16, "fp16": 2}),
    "rdna3": family(128, {"fp64": 1 / 32, "fp16": 2}, 2, int8=1),
    "rdna4 ": family(128, {"fp64": 1 / 32, "fp16": 2}, 4, fp8=2, int8=2),
    "xe2?-hpg ": family(128, {"fp16": 2}, 8, int8=2),
    "xe-hpc ": family(128, {"fp64": 1, "fp16": 2}, 16, tf32=1 / 2, int8=2),
    "apple": family(128, {"fp16": 1}),
    "gaudi-2 ": Family(64, {"bf16": 2}, {"fp16": 78, "bf16": 78, "fp8": 156}),
    "gaudi-3 ": Family(64, {"bf16": 2}, {"fp16": 128, "bf16": 128, "fp8": 128}),
    "eyeriss ": Family(1),
    "zynq": Family(1),
    "skylake-sp xeon-silver": Family(16, {"fp64": 1 / 2}),
    "cascade-lake xeon-silver": Family(16, {"fp64": 1 / 2}),
    "(skylake|cascade-lake|ice-lake)": Family(32, {"fp64": 1 / 2}),
    "sapphire-rapids ": Family(32, {"fp64": 1 / 2, "fp16": 2}, {"bf16": 16, "int8": 32}),
    "granite-rapids ": Family(32, {"fp64": 1 / 2, "fp16": 2}, {"fp16": 16, "bf16": 16, "int8": 32}),
    "(alder|raptor)-lake ": Family(0, {"fp64": 1 / 2}),
    "zen3 ": Family(16, {"fp64": 1 / 2}),
    "zen4 ": Family(16, {"fp64": 1 / 2}, {"bf16": 2, "int8": 4}),
    "zen5 ": Family(32, {"fp64": 1 / 2}, {"bf16": 2, "int8": 4}),
    "neoverse-n1 ": Family(8, {"fp64": 1 / 2, "fp16": 2}),
    "neoverse-v": Family(16, {"fp64": 1 / 2, "fp16": 2}),
    "cortex-a72 ": Family(4, {"fp64": 1 / 2}),
    "(kryo-280|exynos-m1) ": Family(0, {"fp64": 1 / 2}),
    "kryo-385 ": Family(0, {"fp64": 1 / 2, "fp16": 2}),
}
# Cores of two kinds: how many, multiply-adds in fp32 a clock, and the clock in GHz that the rates hold at.
CORE_GROUPS: dict[str, tuple[tuple[int, int, float], ...]] = {
    "i7-12700h": ((6, 16, 2.3), (8, 8, 1.7)),
    "i9-13900k": ((8, 16, 3.0), (16, 8, 2.2)),
    "i9-14900k": ((8, 16, 3.2), (16, 8, 2.4)),
    "pixel-2": ((4, 4, 2.35), (4, 4, 1.9)),
    "essential-ph-1": ((4, 4, 2.45), (4, 4, 1.9)),
    "pixel-3": ((4, 4, 2.5), (4, 4, 1.6)),
    "samsung-galaxy-s7": ((4, 4, 2.288), (4, 4, 1.586)),
}


def family_of(device: Device) -> Family | None:
    """The family of a device, if the table knows it."""
    return _family_of(f"{device.architecture} {device.id}")


@cache
def _family_of(name: str) -> Family | None:
    return next((family for pattern, family in FAMILIES.items() if re.match(pattern, name)), None)


def problems(device: Device, text: str) -> list[str]:
    """What cannot be in a device; nothing, if all of it follows.

    Args:
        device: The device.
        text: Its file, for sizes that the file repeats in words.
    """
    found = family_of(device)
    if found is None:
        return [f"architecture {device.architecture} is not in the table"]
    return [
        *_rates(device, found),
        *_clocks(device),
        *_memory(device),
        *_sizes(device, text),
    ]


def _off(value: float, expected: float, tolerance: float) -> bool:
    return abs(value - expected) > tolerance * expected


def _rates(device: Device, family: Family) -> Iterator[str]:
    fp32 = device.vector_flops_per_s["fp32"]
    groups = CORE_GROUPS.get(device.id)
    if groups:
        expected = sum(cores * lanes * 2 * clock * 1e9 for cores, lanes, clock in groups)
        if device.units != sum(cores for cores, _, _ in groups):
            yield f"units {device.units} are not those of its groups of cores"
    else:
        expected = device.units * family.lanes * 2 * (device.base_clock_hz or device.clock_hz)
    if _off(fp32, expected, RATE_TOLERANCE):
        yield f"fp32 {fp32:.4g} does not follow from units, lanes and clock: {expected:.4g}"
    for kind, rates, ratios in (
        ("vector", device.vector_flops_per_s, family.vector | {"fp32": 1}),
        ("matrix", device.matrix_flops_per_s, family.matrix),
    ):
        for precision, rate in rates.items():
            if precision not in ratios:
                yield f"{kind} {precision} is not what this family has"
            elif _off(rate, ratios[precision] * fp32, RATIO_TOLERANCE):
                yield f"{kind} {precision} {rate:.4g} is not {ratios[precision]:.4g} of fp32 {fp32:.4g}"


def _clocks(device: Device) -> Iterator[str]:
    groups = CORE_GROUPS.get(device.id)
    base = device.base_clock_hz or (groups[0][2] * 1e9 if groups else device.clock_hz)
    x86 = device.kind == "cpu" and device.vendor in ("intel", "amd")
    low, high = CORES_TURBO if x86 else TURBO_ELSEWHERE
    if not low <= device.clock_hz / base <= high:
        yield f"clock {device.clock_hz:.4g} is not {low} to {high} of the base clock {base:.4g}"
    if device.year is not None and not 2010 <= device.year <= 2030:
        yield f"year {device.year}"


def _memory(device: Device) -> Iterator[str]:
    bandwidth, bits, rate = (
        device.memory_bandwidth_bytes_per_s,
        device.memory_bus_bits,
        device.memory_transfer_rate_per_s,
    )
    if bits is None or rate is None:
        yield "the bus or its rate is missing"
    elif _off(bandwidth, bits * rate / 8, BANDWIDTH_TOLERANCE):
        yield f"bandwidth {bandwidth:.4g} does not follow from {bits} bits and {rate:.4g} transfers/s"
    low, high = FP32_PER_BYTE
    if not low < device.vector_flops_per_s["fp32"] / bandwidth < high:
        yield f"bandwidth {bandwidth:.4g} is out of proportion to fp32"


def _sizes(device: Device, text: str) -> Iterator[str]:
    shared = device.kind == "cpu" or (device.link is not None and device.link.name == "unified memory")
    if device.memory_bytes / 2**30 not in (GIB_OF_HOSTS if shared else GIB):
        yield f"memory of {device.memory_bytes} bytes is not a size that is built"
    cache = device.l2_cache_bytes
    low, high = CACHE_BYTES_PER_UNIT
    if cache is not None and not low * device.units <= cache <= high * device.units:
        yield f"a cache of {cache} bytes is out of proportion to {device.units} units"
    for name, size in (("memory_bytes", device.memory_bytes), ("l2_cache_bytes", cache)):
        words = re.search(rf"^{name}: \d+  # ([\d.]+) ([KMG])iB", text, re.M)
        if size is not None and (not words or size != float(words[1]) * 2 ** (10 * " KMG".index(words[2]))):
            yield f"{name} {size} is not what the file says in words"
