from pathlib import Path

import pytest
from one_line_error import error_of

from gnnperf.hardware import Device, catalogue, device_catalogue, device_ids, load_device

PROMISED = """
rtx-3090 rtx-4090 rtx-5090 rtx-pro-6000-max-q a100-pcie-40gb a100-sxm4-40gb a100-pcie-80gb h100-sxm5-80gb
h200-sxm-141gb v100-pcie-32gb p100-pcie-16gb t4 p4 l4 l40s a10 k40 k80 m60 gtx-1080-ti rtx-2080-ti titan-xp titan-v
titan-rtx mi100 mi210 mi250 rx-6800 rx-7800-xt rx-7900-xtx i9-10940x i7-12700h
""".split()
EXPECTED = (
    "year",
    "power_watts",
    "units",
    "clock_hz",
    "vector_flops_per_s",
    "matrix_flops_per_s",
    "memory_bandwidth_bytes_per_s",
    "memory_bytes",
    "memory_bus_bits",
    "memory_transfer_rate_per_s",
    "l2_cache_bytes",
)
OPTIONAL = ("base_clock_hz", "list_price_usd", "link", "peer_link")
LATENCY_TABLES = """
gtx-1080-ti titan-x-pascal titan-xp titan-rtx xeon-silver-4114 xeon-silver-4210r xeon-gold-6226 xeon-gold-6240 pixel-2
pixel-3 samsung-galaxy-s7 essential-ph-1 raspberry-pi-4 eyeriss fpga jetson-tx2 i7-7820x jetson-nano
""".split()


def test_catalogue_keeps_its_promises() -> None:
    assert set(PROMISED) <= set(device_ids()) and len(device_ids()) >= 75
    assert list(catalogue()) == sorted(catalogue()) == list(device_ids())
    for device_id, device in catalogue().items():
        assert device.id == device_id
        assert device_id == device_id.lower() and "_" not in device_id and " " not in device_id
        hash(device)


def test_devices_of_published_latency_tables_are_there() -> None:
    assert set(LATENCY_TABLES) <= set(device_ids())
    kinds = {load_device(device_id).kind for device_id in LATENCY_TABLES}
    assert kinds == {"gpu", "cpu", "accelerator"}


@pytest.mark.parametrize("device", catalogue().values(), ids=device_ids())
def test_every_number_has_a_source(device: Device) -> None:
    for field in (*EXPECTED, *OPTIONAL):
        known = getattr(device, field) is not None
        assert known or field in OPTIONAL or device.id not in PROMISED
        assert not known or len(device.sources[field]) > 20, field
        assert known or field not in device.sources, field
    assert (device.link is not None) == (device.kind != "cpu")
    for link in (device.link, device.peer_link):
        assert link is None or 4e8 < link.bandwidth_bytes_per_s < 1e13
        assert link is None or 1e-8 < link.latency_s < 1e-5


def test_what_it_costs_is_known_of_most_cards_that_shops_sell() -> None:
    consumer = [device for device in catalogue().values() if "GeForce" in device.name and "Laptop" not in device.name]
    assert len(consumer) > 30 and all(device.list_price_usd for device in consumer)
    assert load_device("h100-sxm5-80gb").list_price_usd is None  # NVIDIA publishes none
    assert all(50 < device.list_price_usd < 20_000 for device in catalogue().values() if device.list_price_usd)


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
