from pathlib import Path

import pytest
from one_line_error import error_of

from gnnperf.hardware import Device, catalogue, device_catalogue, device_ids, load_device

PROMISED = """
rtx-3090 rtx-4090 rtx-5090 rtx-pro-6000-max-q a100-pcie-40gb a100-sxm4-40gb a100-pcie-80gb h100-sxm5-80gb
h200-sxm-141gb v100-pcie-32gb p100-pcie-16gb t4 p4 l4 l40s a10 k40 k80 m60 gtx-1080-ti rtx-2080-ti titan-xp titan-v
titan-rtx mi100 mi210 mi250 rx-6800 rx-7800-xt rx-7900-xtx i9-10940x i7-12700h
""".split()
NUMBER_FIELDS = (
    "year",
    "power_watts",
    "units",
    "clock_hz",
    "vector_flops_per_s",
    "matrix_flops_per_s",
    "memory_bandwidth_bytes_per_s",
    "memory_bytes",
    "l2_cache_bytes",
)
# fp32 lanes of one unit; pascal depends on the chip.
LANES = {
    "kepler": 192,
    "maxwell": 128,
    "volta": 64,
    "turing": 64,
    "ada": 128,
    "hopper": 128,
    "blackwell": 128,
    "cdna1": 64,
    "cdna2": 64,
    "cdna3": 128,
    "rdna2": 64,
    "rdna3": 128,
}
HALF_RATE_CHIPS = ("p100", "a100", "a30")  # GP100 and GA100 have 64 lanes, the smaller chips of their families 128
# Memory buses: bits and Gb/s a pin, independent of the catalogue's text.
BUSES = {
    "rtx-3090": (384, 19.5),
    "rtx-4090": (384, 21),
    "rtx-5090": (512, 28),
    "rtx-pro-6000-max-q": (512, 28),
    "a100-pcie-40gb": (5120, 2.43),
    "a100-sxm4-80gb": (5120, 3.186),
    "h100-sxm5-80gb": (5120, 5.24),
    "v100-pcie-32gb": (4096, 1.754),
    "p100-pcie-16gb": (4096, 1.43),
    "t4": (256, 10),
    "p4": (256, 6),
    "l4": (192, 12.5),
    "l40s": (384, 18),
    "a10": (384, 12.5),
    "k40": (384, 6),
    "k80": (384, 5),
    "m60": (256, 5),
    "gtx-1080-ti": (352, 11),
    "rtx-2080-ti": (352, 14),
    "titan-xp": (384, 11.4),
    "titan-v": (3072, 1.7),
    "titan-rtx": (384, 14),
    "mi100": (4096, 2.4),
    "mi210": (4096, 3.2),
    "mi250": (4096, 3.2),
    "rx-6800": (256, 16),
    "rx-7800-xt": (256, 19.5),
    "rx-7900-xtx": (384, 20),
    "i9-10940x": (4 * 64, 2.933),
    "i7-12700h": (2 * 64, 4.8),
}


def test_catalogue_keeps_its_promises() -> None:
    assert set(PROMISED) <= set(device_ids())
    assert list(catalogue()) == sorted(catalogue()) == list(device_ids())
    for device_id, device in catalogue().items():
        assert device.id == device_id
        assert device_id == device_id.lower() and "_" not in device_id and " " not in device_id
        hash(device)


@pytest.mark.parametrize("device", catalogue().values(), ids=device_ids())
def test_every_number_has_a_source(device: Device) -> None:
    for field in NUMBER_FIELDS:
        known = getattr(device, field) is not None
        assert known or device.id not in PROMISED
        assert not known or len(device.sources[field]) > 20, field
    assert (device.link is not None) == (device.kind != "cpu")
    assert device.link is None or "link" in device.sources


@pytest.mark.parametrize("device", [d for d in catalogue().values() if d.kind == "gpu"], ids=lambda d: d.id)
def test_gpu_rates_follow_from_units_and_clock(device: Device) -> None:
    lanes = LANES.get(device.architecture, 64 if device.id.startswith(HALF_RATE_CHIPS) else 128)
    fp32 = device.vector_flops_per_s["fp32"]
    assert fp32 == pytest.approx(device.units * lanes * 2 * device.clock_hz, rel=0.03)
    if "fp16" in device.matrix_flops_per_s:
        assert device.matrix_flops_per_s["fp16"] >= device.vector_flops_per_s.get("fp16", fp32)
    share = device.vector_flops_per_s["fp64"] / fp32
    assert min(abs(share * d - 1) for d in (1, 2, 3, 16, 32, 64)) < 0.03
    assert 5 < fp32 / device.memory_bandwidth_bytes_per_s < 130
    assert 5e9 < device.link.bandwidth_bytes_per_s < 70e9  # type: ignore[union-attr]


def test_tensor_cores_follow_from_units_and_clock() -> None:
    # FLOPs of one unit and clock in dense fp16 with fp32 accumulation.
    for device_id, rate in {
        "rtx-3090": 512,
        "rtx-4090": 512,
        "rtx-5090": 512,
        "rtx-2080-ti": 512,
        "titan-rtx": 1024,
        "t4": 1024,
        "v100-sxm2-16gb": 1024,
        "rtx-a6000": 1024,
        "rtx-pro-6000-max-q": 1024,
        "l4": 1024,
        "a100-pcie-40gb": 2048,
        "mi100": 1024,
        "mi210": 1024,
        "rx-7900-xtx": 512,
    }.items():
        device = load_device(device_id)
        assert device.matrix_flops_per_s["fp16"] == pytest.approx(device.units * rate * device.clock_hz, rel=0.03)


@pytest.mark.parametrize("device_id", BUSES)
def test_bandwidth_follows_from_the_bus(device_id: str) -> None:
    bits, gigabits_per_s = BUSES[device_id]
    expected = bits * gigabits_per_s * 1e9 / 8
    assert load_device(device_id).memory_bandwidth_bytes_per_s == pytest.approx(expected, rel=0.01)


def test_cpu_rates() -> None:
    for device_id, flops_per_clock, base_hz in (("i9-10940x", 14 * 64, 3.3e9), ("xeon-gold-6240", 18 * 64, 2.6e9)):
        rates = load_device(device_id).vector_flops_per_s
        assert rates["fp32"] == pytest.approx(flops_per_clock * base_hz, rel=0.01)
        assert rates["fp64"] == pytest.approx(rates["fp32"] / 2)
    assert load_device("i7-12700h").vector_flops_per_s["fp32"] == pytest.approx(192 * 2.3e9 + 128 * 1.7e9, rel=0.01)


def test_one_id_reads_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = device_catalogue.read_device, []

    def spy(path: Path) -> Device:
        files.append(path.name)
        return read(path)

    monkeypatch.setattr(device_catalogue, "read_device", spy)
    device_catalogue._load_catalogued.cache_clear()
    assert load_device("t4") is load_device("t4")
    assert files == ["t4.yaml"]


@pytest.mark.parametrize("text", ["rtx4091", "RTX_4090", "rtx 4090"])
def test_unknown_id_suggests(text: str) -> None:
    message = error_of(text)
    assert f"unknown device '{text}': did you mean" in message
    assert "rtx-4090" in message and "`gnnperf devices` lists all" in message


def test_unknown_id_without_a_near_one() -> None:
    assert error_of("quux") == "unknown device 'quux': `gnnperf devices` lists all; a YAML file of your own works too"
    assert "a device is an id or a file, not ''" in error_of("")
    assert "not 5" in error_of(5)  # type: ignore[arg-type]
    error_of("x" * 100_000)
