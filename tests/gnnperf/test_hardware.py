import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gnnperf import hardware
from gnnperf.hardware import Device, Link, Software, catalogue, device_ids, load_device

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
MINIMAL = {
    "kind": "gpu",
    "units": 10,
    "clock_hz": 1e9,
    "vector_flops_per_s": {"fp32": 2e12},
    "memory_bandwidth_bytes_per_s": 5e11,
    "memory_bytes": 8 * 2**30,
}


def write(path: Path, **changes: object) -> Path:
    content = {key: value for key, value in (MINIMAL | changes).items() if value is not ...}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def error_of(path: Path | str) -> str:
    with pytest.raises(ValueError) as caught:
        load_device(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


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


def test_peak_flops_per_s() -> None:
    ada = load_device("rtx-4090")
    assert ada.peak_flops_per_s("fp16", matrix=True) == 165.2e12
    assert ada.peak_flops_per_s("fp16", matrix=False) == 82.6e12
    assert ada.peak_flops_per_s("fp32", matrix=True) == 82.6e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("tf32", matrix=True) == 156e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("fp32", matrix=True) == 19.5e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("fp64", matrix=True) == 19.5e12
    pascal = load_device("gtx-1080-ti")
    for precision in ("fp32", "tf32", "fp16", "bf16", "int8"):  # fp16 is slower than fp32 there, so nobody uses it
        assert pascal.peak_flops_per_s(precision, matrix=True) == pascal.vector_flops_per_s["fp32"]
    assert pascal.peak_flops_per_s("fp64", matrix=True) < pascal.vector_flops_per_s["fp32"] / 30
    volta = load_device("v100-pcie-32gb")
    assert volta.peak_flops_per_s("bf16", matrix=True) == volta.peak_flops_per_s("fp32", matrix=True)
    assert volta.peak_flops_per_s("fp16", matrix=False) == 2 * volta.vector_flops_per_s["fp32"]
    mi100 = load_device("mi100")
    assert mi100.peak_flops_per_s("tf32", matrix=True) == mi100.matrix_flops_per_s["fp32"]
    with pytest.raises(ValueError, match="'amp' is not one of fp64"):
        ada.peak_flops_per_s("amp", matrix=True)


def test_one_id_reads_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = hardware._read_device, []

    def spy(path: Path) -> Device:
        files.append(path.name)
        return read(path)

    monkeypatch.setattr(hardware, "_read_device", spy)
    hardware._load_catalogued.cache_clear()
    assert load_device("t4") is load_device("t4")
    assert files == ["t4.yaml"]


def test_user_file_needs_little(tmp_path: Path) -> None:
    device = load_device(str(write(tmp_path / "my card.yaml")))
    assert (device.id, device.name, device.vendor, device.architecture) == ("my card", "my card", "unknown", "unknown")
    assert device.matrix_flops_per_s == {} and device.sources == {}
    assert (device.l2_cache_bytes, device.year, device.power_watts, device.link) == (None, None, None, None)
    assert load_device(device) is device
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(MINIMAL), encoding="utf-8")
    assert replace(load_device(copy), id="my card", name="my card") == device


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text(
        "kind: gpu\nunits: '10'\nclock_hz: 1e9\nvector_flops_per_s: {fp32: 2E12}\n"
        "memory_bandwidth_bytes_per_s: 5e11\nmemory_bytes: 8e9\n"
    )
    device = load_device(path)
    assert (device.units, device.clock_hz, device.memory_bytes) == (10, 1e9, 8_000_000_000)
    assert isinstance(device.memory_bytes, int) and isinstance(device.clock_hz, float)


def test_links(tmp_path: Path) -> None:
    link = load_device(write(tmp_path / "a.yaml", link="PCIe 3.0 x8")).link
    assert link is not None and link.bandwidth_bytes_per_s == pytest.approx(7.88e9, rel=0.01)
    values = {"name": "unified memory", "bandwidth_bytes_per_s": 1e11, "latency_s": 1e-7}
    assert load_device(write(tmp_path / "a.yaml", link=values)).link == Link("unified memory", 1e11, 1e-7)
    assert "PCIe 4.0 x16" in error_of(write(tmp_path / "a.yaml", link="PCIe 9.0 x16"))
    assert "'link.latency_s' is missing" in error_of(write(tmp_path / "a.yaml", link={"bandwidth_bytes_per_s": 1e11}))


@pytest.mark.parametrize("field", [*MINIMAL, "vector_flops_per_s.fp32"])
def test_missing_field(tmp_path: Path, field: str) -> None:
    change = {"vector_flops_per_s": {"fp16": 1e12}} if "." in field else {field: ...}
    message = error_of(write(tmp_path / "card.yaml", **change))
    assert "card.yaml" in message and f"'{field}' is missing" in message


@pytest.mark.parametrize("value", [True, "fast", None, [1], float("nan"), float("inf"), -1, 0, "-5e11", "nan", 10**400])
@pytest.mark.parametrize(
    "field", ["memory_bandwidth_bytes_per_s", "units", "vector_flops_per_s.fp32", "l2_cache_bytes"]
)
def test_bad_number(tmp_path: Path, field: str, value: object) -> None:
    change = {"vector_flops_per_s": {"fp32": value}} if "." in field else {field: value}
    assert f"{field} must be " in error_of(write(tmp_path / "card.yaml", **change))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"memory_bandwidth": 936}, "unknown field 'memory_bandwidth': did you mean memory_bandwidth_bytes_per_s"),
        ({"vector_flops_per_s": {"fp32": 1e12, "fp31": 1e12}}, "vector_flops_per_s has the unknown field 'fp31'"),
        ({"vector_flops_per_s": 2e12}, "vector_flops_per_s must be a mapping"),
        ({"memory_bandwidth_bytes_per_s": 936}, "in bytes per second between"),
        ({"units": 1.5}, "units must be a whole number"),
        ({"kind": "tpu"}, "kind must be one of gpu, cpu, accelerator, not 'tpu'"),
        ({"name": 5}, "name must be a line of text, not 5"),
        ({"name": "a\nb"}, "name must be a line of text"),
        ({"sources": ["x"]}, "sources must map"),
        ({"sources": {"book": ["clock"]}}, "a field in sources must be one of"),
        ({1: 2}, "unknown field 1"),
    ],
)
def test_wrong_fields(tmp_path: Path, changes: dict[str, object], expected: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump(MINIMAL | changes))
    assert expected in error_of(path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.yaml", b"kind: [", "not valid YAML"),
        ("a.yaml", b"kind: \x00", "not valid YAML"),
        ("a.yaml", b"\xff\xfe\xfa", "not UTF-8"),
        ("a.yaml", b"", "must be a mapping"),
        ("a.yaml", b"- 1", "must be a mapping"),
        ("a.yaml", b"kind: gpu\nkind: cpu", "'kind' is given twice"),
        ("a.yaml", b"a: &a {b: 1}\nc: {<<: *a}", "merge keys"),
        ("a.yaml", b"kind: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("a.yaml", b"kind: gpu\n---\nkind: gpu", "not valid YAML"),
        ("a.yaml", b"[" * 50_000, "nested too deeply"),
        ("a.yaml", b"a: " + b"x" * 1_000_001, "larger than 1000000 bytes"),
        ("a.json", b"[" * 500_000, "nested too deeply"),
        ("a.json", b"{,}", "not valid JSON"),
        ("a.json", b'{"kind": 1, "kind": 2}', "'kind' is given twice"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = error_of(path)
    assert name in message and expected in message


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    names = ["name", "vendor", "architecture", "kind", "units", "clock_hz", "year", "link", "memory_bytes"]
    lines = ["name: &a0 [x, x]"]
    lines += [f"{name}: &a{i + 1} [{', '.join([f'*a{i}'] * 50)}]" for i, name in enumerate(names[1:])]
    lines += [f"{name}: *a8" for name in ("vector_flops_per_s", "memory_bandwidth_bytes_per_s")]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    assert "name must be a line of text" in error_of(path)
    path.write_text("\n".join([*lines, "id: *a8"]).replace("name: &a0 [x, x]", "id: &a0 [x]").replace("id: *a8", ""))
    assert "id must be a line of text" in error_of(path)
    content = "\n".join(lines).replace("name: &a0", "sources: &a0").replace("kind: &a3", "vendor_: &a3")
    path.write_text(content)
    assert "unknown field 'vendor_': did you mean vendor" in error_of(path)


def test_unreadable_files(tmp_path: Path) -> None:
    assert "cannot read device file" in error_of(tmp_path / "none.yaml")
    assert "No such file" in error_of("none.yaml")
    assert "cannot read device file" in error_of(f"{tmp_path}/")
    assert "null byte" in error_of("a\0.yaml")


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


def test_software_defaults() -> None:
    software = Software()
    assert (software.framework, software.version, software.release) == ("torch", "2.9", (2, 9))
    assert (software.compiled, software.memory_format, software.attention) == (False, "channels_first", "fused")
    assert Software(framework="onnxruntime").version == "1.23"
    assert len({software, Software(version="2.9")}) == 1
    assert Software(version="2.10").release > Software(version="2.9").release
    assert Software(version="2.9.1+cu128").release == (2, 9)


def test_attention_follows_framework_and_version() -> None:
    assert Software(version="1.13").attention == "decomposed"
    assert Software(version="2.0").attention == "fused"
    assert Software(version="1.13", attention_implementation="fused").attention == "fused"
    assert Software(attention_implementation="decomposed").attention == "decomposed"
    assert Software(framework="tensorflow").attention == "decomposed"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"framework": "jax"}, "framework must be one of torch, onnxruntime, tensorflow, not 'jax'"),
        ({"memory_format": "nhwc"}, "memory_format must be one of channels_first, channels_last, not 'nhwc'"),
        ({"attention_implementation": "sdpa"}, "attention_implementation must be one of fused, decomposed"),
        ({"version": 2.9}, "version must be a string such as '2.9', not 2.9"),
        ({"version": "pt2.9"}, "version must be a string"),
        ({"version": "2"}, "version must be a string"),
        ({"version": "2.9\n"}, "version must be a string"),
        ({"version": None}, "version must be a string"),
        ({"compiled": "yes"}, "compiled must be True or False, not 'yes'"),
        ({"compiled": True, "version": "1.13"}, "compiled needs torch 2.0 or later, not 1.13"),
    ],
)
def test_software_validation(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        Software(**fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)
