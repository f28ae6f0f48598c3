"""Devices as their spec sheets, and what joins them to their hosts."""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = ("gpu", "cpu", "accelerator")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")
VECTOR_PRECISIONS = ("fp64", "fp32", "fp16", "bf16")
MATRIX_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Link:
    """What joins a device to its host, or to others of its kind.

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
        base_clock_hz: Clock at which the rates of a CPU hold, of its large cores; ``None`` where that is ``clock_hz``.
        vector_flops_per_s: Peak by precision outside of the matrix units, for precisions that the hardware has.
        matrix_flops_per_s: Dense peak by precision of the matrix units; empty without such units.
        memory_bandwidth_bytes_per_s: Peak of the device's own memory; of all channels populated for a CPU.
        memory_bytes: Capacity of that memory; for a CPU the host's memory that its file assumes.
        memory_bus_bits: Width of the bus to that memory, all channels together.
        memory_transfer_rate_per_s: Transfers on every pin of that bus, both edges of the clock counted.
        l2_cache_bytes: Size of the last-level cache: L2 of most GPUs, L3 of CPUs, AMD's Infinity Cache.
        year: When it came out.
        power_watts: Board power of a GPU, base power of a CPU.
        list_price_usd: Published list price at launch, in dollars of that day, without tax.
        link: To the host; ``None`` for a CPU, which is the host, and where unknown.
        peer_link: To devices of the same kind past the host, such as NVLink: all its lanes together, one direction.
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
    base_clock_hz: float | None = None
    memory_bus_bits: int | None = None
    memory_transfer_rate_per_s: float | None = None
    list_price_usd: float | None = None
    peer_link: Link | None = None
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
