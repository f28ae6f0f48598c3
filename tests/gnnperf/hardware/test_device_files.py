import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from one_line_error import error_of

from gnnperf.hardware import Link, load_device

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


def test_user_file_needs_little(tmp_path: Path) -> None:
    device = load_device(str(write(tmp_path / "my card.yaml")))
    assert (device.id, device.name, device.vendor, device.architecture) == ("my card", "my card", "unknown", "unknown")
    assert device.matrix_flops_per_s == {} and device.sources == {}
    for optional in ("l2_cache_bytes", "year", "power_watts", "link", "base_clock_hz", "memory_bus_bits"):
        assert getattr(device, optional) is None
    assert (device.memory_transfer_rate_per_s, device.list_price_usd, device.peer_link) == (None, None, None)
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
    shared = load_device(write(tmp_path / "a.yaml", link="unified memory")).link
    assert shared is not None and shared.bandwidth_bytes_per_s == MINIMAL["memory_bandwidth_bytes_per_s"]
    assert "link must be such as 'PCIe 4.0 x16', 'unified memory', or give" in error_of(
        write(tmp_path / "a.yaml", link="PCIe 9.0 x16")
    )
    peers = load_device(write(tmp_path / "a.yaml", peer_link=values | {"name": "NVLink 4.0 x18"})).peer_link
    assert peers == Link("NVLink 4.0 x18", 1e11, 1e-7)
    assert "'peer_link.latency_s' is missing" in error_of(
        write(tmp_path / "a.yaml", peer_link={"bandwidth_bytes_per_s": 1e11})
    )
    assert "peer_link.latency_s must be positive" in error_of(
        write(tmp_path / "a.yaml", peer_link=values | {"latency_s": 0})
    )
    error_of(write(tmp_path / "a.yaml", link="PCIe" * 1000))
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
        ({"list_price_usd": "free"}, "list_price_usd must be a number (US dollars), not 'free'"),
        ({"memory_bus_bits": 0.5}, "memory_bus_bits must be in bits between 8 and 1e+06, not 0.5"),
        ({"memory_transfer_rate_per_s": 21}, "memory_transfer_rate_per_s must be in transfers per second between"),
        ({"base_clock_hz": 2.5}, "base_clock_hz must be in hertz between"),
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
