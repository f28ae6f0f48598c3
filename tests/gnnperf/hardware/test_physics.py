from collections.abc import Iterator
from dataclasses import replace

import pytest
from physics import CORE_GROUPS, FAMILIES, family_of, problems

from gnnperf.hardware import CATALOGUE_FOLDER, Device, catalogue, device_ids

EACH = pytest.mark.parametrize("device", catalogue().values(), ids=device_ids())
NUMBERS = (
    "year",
    "units",
    "clock_hz",
    "base_clock_hz",
    "memory_bandwidth_bytes_per_s",
    "memory_bytes",
    "memory_bus_bits",
    "memory_transfer_rate_per_s",
    "l2_cache_bytes",
)
RATES = ("vector_flops_per_s", "matrix_flops_per_s")


def text_of(device: Device) -> str:
    return (CATALOGUE_FOLDER / f"{device.id}.yaml").read_text(encoding="utf-8")


def altered(device: Device, factor: float) -> Iterator[tuple[str, Device]]:
    """A copy for every number that it has, with that number wrong by a factor."""
    for name in NUMBERS:
        value = getattr(device, name)
        if value is not None:
            yield name, replace(device, **{name: type(value)(value * factor)})
    for name in RATES:
        rates = getattr(device, name)
        for precision, rate in rates.items():
            yield f"{name}.{precision}", replace(device, **{name: rates | {precision: rate * factor}})


@EACH
def test_numbers_follow_from_one_another(device: Device) -> None:
    assert problems(device, text_of(device)) == []


@EACH
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_number_wrong_by_a_factor_of_two_is_seen(device: Device, factor: float) -> None:
    text = text_of(device)
    assert [name for name, copy in altered(device, factor) if not problems(copy, text)] == []


def test_an_altered_file_is_seen() -> None:
    device = catalogue()["rtx-4090"]
    text = text_of(device).replace("# 72 MiB", "# 36 MiB")
    assert problems(device, text) == ["l2_cache_bytes 75497472 is not what the file says in words"]
    unlike = replace(device, architecture="warp")
    assert problems(unlike, text) == ["architecture warp is not in the table"]
    assert "bus" in problems(replace(device, memory_bus_bits=None), text)[0]
    assert "not what this family has" in problems(replace(device, matrix_flops_per_s={"fp64": 1e12}), text)[0]


def test_the_tables_hold_no_more_than_the_catalogue() -> None:
    assert set(CORE_GROUPS) <= set(device_ids())
    assert {id(family_of(device)) for device in catalogue().values()} == {id(f) for f in FAMILIES.values()}
