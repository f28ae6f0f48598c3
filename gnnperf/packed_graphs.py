"""Tensors of many small graphs in few files, where a file for each would be slow to find, open and list."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from gnnperf.output import replace_whole

PACK_SIZE = 4096
# Along which dimension tensors are joined, where it is not the first.
_JOINED_ALONG = {"edge_index": 1}

# Facts, and the dict of a ``torch_geometric`` ``Data``.
Entry = tuple[dict[str, Any], dict[str, Any]]


class PackedGraphs:
    """Facts and tensors of graphs by key, in a folder of packs; a pack joins the tensors of up to ``PACK_SIZE`` graphs.

    Packs are only ever added, so that several processes may fill one folder; what one of them adds, others see when
    they first read. What is added is written when a pack is full, and by ``flush``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[str, Entry] | None = None
        self._unwritten: dict[str, Entry] = {}

    def get(self, key: str) -> Entry | None:
        """The entry of ``key``, if there is one; its tensors are views of the whole pack."""
        if self._entries is None:
            self._entries = {}
            for path in sorted(self._folder.glob("*.pt")):
                self._entries |= _unpack(path)
        return self._entries.get(key)

    def add(self, key: str, facts: dict[str, Any], data: dict[str, Any]) -> None:
        """Keep an entry; all entries have tensors, and numbers, of the same names."""
        self.get(key)
        assert self._entries is not None
        self._entries[key] = self._unwritten[key] = (facts, data)
        if len(self._unwritten) >= PACK_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write what was added since."""
        if not self._unwritten:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256("\n".join(self._unwritten).encode()).hexdigest()[:24]
        replace_whole(self._folder / f"{name}.pt", _pack(self._unwritten))
        self._unwritten = {}


def _pack(entries: dict[str, Entry]) -> bytes:
    """Of every tensor of the graphs one that joins them all, and how long each part is."""
    datas = [data for _, data in entries.values()]
    tensors, lengths, numbers = {}, {}, {}
    for name, value in datas[0].items():
        column = [data[name] for data in datas]
        if isinstance(value, torch.Tensor):
            dim = _JOINED_ALONG.get(name, 0)
            tensors[name] = torch.cat(column, dim)
            lengths[name] = [t.shape[dim] for t in column]
        else:
            numbers[name] = column
    facts = [facts for facts, _ in entries.values()]
    saved = io.BytesIO()
    torch.save(
        {"keys": list(entries), "facts": facts, "tensors": tensors, "lengths": lengths, "numbers": numbers}, saved
    )
    return saved.getvalue()


def _unpack(path: Path) -> dict[str, Entry]:
    pack = torch.load(path, weights_only=True)
    columns = {
        name: torch.split(tensor, pack["lengths"][name], _JOINED_ALONG.get(name, 0))
        for name, tensor in pack["tensors"].items()
    } | pack["numbers"]
    rows = zip(*columns.values(), strict=True)
    return {
        key: (facts, dict(zip(columns, row, strict=True)))
        for key, facts, row in zip(pack["keys"], pack["facts"], rows, strict=True)
    }
