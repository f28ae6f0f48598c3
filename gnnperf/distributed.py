"""Several processes that train one model together, as ``torchrun`` starts them.

Gradients travel through torch's ``DistributedDataParallel``: with NCCL between GPUs, with Gloo between CPUs. Everything
else that processes tell each other goes through Gloo.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCELERATORS = ("cpu", "cuda")
# Rank 0 may capture networks or judge the model for long, while the others wait.
_PATIENCE = timedelta(days=2)

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that train together, and which of them this one is; one process alone by default.

    Attributes:
        rank: Of this process, from 0.
        size: How many there are.
        device: What this process computes on.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files, logs and judges."""
        return self.rank == 0

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sums over all processes, on each of them."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        dist.all_reduce(total)
        return total.tolist()

    def from_first(self, make: Callable[[], T]) -> T:
        """What ``make`` returns in the first process, in each of them; the others do not call it, but wait.

        Raises:
            ValueError: In each of them, if ``make`` raises one.
        """
        if self.size == 1:
            return make()
        box: list[Any] = [None, ""]
        try:
            box = [make() if self.first else None, ""]
        except ValueError as error:
            box = [None, str(error) or "a wrong value"]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        made, problem = box
        if problem:
            raise ValueError(problem)
        return made

    def on_first(self, make: Callable[[], T]) -> T | None:
        """The same for what cannot travel: it is in the first process alone, and None in the others."""
        made: list[T] = []
        self.from_first(lambda: made.append(make()))
        return made[0] if made else None

    def check_equal(self, value: object, what: str) -> None:
        """See that all processes have the same ``value``.

        Raises:
            ValueError: If one has another than the first, naming ``what`` it is.
        """
        if self.from_first(lambda: value) != value:
            raise ValueError(f"process {self.rank} has {what} that process 0 does not have: start them all alike")

    def share(self, costs: Sequence[float]) -> slice:
        """The part of a list of work that this process does: neighbours, of about the same cost for each process.

        It is empty where there is less work than processes.

        Args:
            costs: Of every piece of work, positive.
        """
        ends = np.cumsum(np.asarray(costs, dtype=np.float64))
        owners = np.floor((ends - np.asarray(costs) / 2) / ends[-1] * self.size)
        start, stop = np.searchsorted(owners, [self.rank, self.rank + 1])
        return slice(int(start), int(stop))

    def together(self, module: nn.Module) -> nn.Module:
        """``module`` with gradients that are averaged over all processes as they come out of a backward pass."""
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, broadcast_buffers=False)


def start_ranks(accelerator: str = "cpu") -> Ranks:
    """Join the other processes that ``torchrun`` has started; without it, this process stands alone.

    Args:
        accelerator: ``cpu``, or ``cuda`` for a GPU of its own for each process.

    Raises:
        ValueError: If the accelerator is none of these, or there are too few GPUs.
    """
    if accelerator not in ACCELERATORS:
        raise ValueError(f"accelerator is {accelerator!r}: write {' or '.join(ACCELERATORS)}")
    rank, local, size = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = torch.device("cpu")
    if accelerator == "cuda":
        gpus = torch.cuda.device_count()
        if local >= gpus:
            raise ValueError(f"accelerator is cuda, but process {local} has no GPU: torch sees {gpus}; take cpu")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if size > 1 and not dist.is_initialized():
        with_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if with_nccl else "gloo", timeout=_PATIENCE)
        atexit.register(dist.destroy_process_group)
    return Ranks(rank, max(1, size), device)
