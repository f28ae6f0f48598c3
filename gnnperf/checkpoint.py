"""Files from which an interrupted training goes on: there whole or not at all, and read without running anything."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values; whenever the process or the machine dies, the old file or the new one is there.

    Raises:
        OSError: If it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what ``write_checkpoint`` wrote, tensors on the CPU.

    Raises:
        ValueError: If there is something else in the file.
    """
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, EOFError, RuntimeError, KeyError, ValueError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"cannot go on from checkpoint {str(path)!r}, delete it to start over: {reason}") from error
    if not isinstance(state, dict):
        raise ValueError(f"checkpoint {str(path)!r} holds something else: delete it to start over")
    return state
