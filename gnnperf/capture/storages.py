"""Know tensors by the memory that they share, and see when it is taken and given back."""

from __future__ import annotations

import weakref
from functools import partial

import torch


class Storages:
    """Numbers storages as they come up.

    On ``meta`` Python and autograd hold on to tensors as they do in a real run, so memory is given back where it really
    would be. A number is never used twice, though torch may use an address again.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._same: dict[int, int] = {}
        self._taken: dict[int, tuple[int, int]] = {}
        self._given_back: dict[int, int] = {}
        self._time = 0

    def key(self, tensor: torch.Tensor) -> int:
        """The number of the memory of ``tensor``."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if (key := self._numbers.get(address)) is None:
            key = self._numbers[address] = len(self._watched)
            self._watched[key] = weakref.ref(storage, partial(self._give_back, address, key))
        return self._same.get(key, key)

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of ``tensor`` has a number."""
        return tensor.untyped_storage()._cdata in self._numbers

    def identify(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Take the memory of ``tensor`` for that of ``other``."""
        self._same[self.key(tensor)] = self.key(other)

    def take(self, tensor: torch.Tensor) -> None:
        """Say that the run has just allocated the memory of ``tensor``, if that is new."""
        if not self.is_known(tensor):
            self._taken[self.key(tensor)] = (self._time, tensor.untyped_storage().nbytes())

    def tick(self) -> None:
        """Say that an op has run."""
        self._time += 1

    def lives(self) -> list[tuple[int, int, int, int]]:
        """Key, bytes, and the first and the last op between which each allocation was there, in order."""
        last = self._time - 1
        lives = [
            (key, size, first, min(self._given_back.get(key, last), last)) for key, (first, size) in self._taken.items()
        ]
        return [life for life in lives if life[1] and life[2] <= life[3]]

    def _give_back(self, address: int, key: int, _: object) -> None:
        self._numbers.pop(address, None)
        self._given_back[key] = self._time - 1
