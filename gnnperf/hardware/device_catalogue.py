"""The devices that the library knows, and the way to them and to a user's own by one name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from gnnperf.hardware.checks import did_you_mean, short
from gnnperf.hardware.device import Device
from gnnperf.hardware.device_files import read_device

CATALOGUE_FOLDER = Path(__file__).parents[1] / "devices"


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
            the fields in ``device_files.REQUIRED`` only; numbers that it leaves out are unknown, and without
            ``matrix_flops_per_s`` the device has no matrix units.

    Raises:
        ValueError: If there is no such device, or the file cannot be read or is wrong, with the field at fault.
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, Path):
        return read_device(device)
    if not isinstance(device, str) or not device:
        raise ValueError(f"a device is an id or a file, not {short(device)}; `gnnperf devices` lists the ids")
    separators = {os.sep, os.altsep or os.sep}
    if device.lower().endswith((".yaml", ".yml", ".json")) or any(separator in device for separator in separators):
        return read_device(Path(device))
    if device not in device_ids():
        near = did_you_mean(device, device_ids()) or ":"
        raise ValueError(
            f"unknown device {short(device)}{near} `gnnperf devices` lists all; a YAML file of your own works too"
        )
    return _load_catalogued(device)


@cache
def _load_catalogued(device_id: str) -> Device:
    return read_device(CATALOGUE_FOLDER / f"{device_id}.yaml")
