"""Reads what wandb keeps offline, without a server: a log in the manner of LevelDB, of protobuf records."""

import json
import struct
from pathlib import Path
from typing import Any

BLOCK_BYTES = 32768
FILE_HEADER_BYTES, HEADER_BYTES = 7, 7  # of a piece: checksum (4), length (2), kind (1)
WHOLE, FIRST, MIDDLE, LAST = range(1, 5)


def _records(data: bytes) -> list[bytes]:
    records, parts, at = [], b"", FILE_HEADER_BYTES
    while at + HEADER_BYTES <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES:  # too little is left of a block
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER_BYTES])
        piece = data[at + HEADER_BYTES : at + HEADER_BYTES + length]
        parts = piece if kind in (WHOLE, FIRST) else parts + piece
        if kind in (WHOLE, LAST):
            records.append(parts)
        at += HEADER_BYTES + length
    return records


def history(run: Path) -> list[dict[str, Any]]:
    """What was logged step by step into an ``offline-run-...`` folder."""
    from wandb.proto import wandb_internal_pb2

    (file,) = run.glob("*.wandb")
    steps = []
    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            steps.append(items)
    return steps
