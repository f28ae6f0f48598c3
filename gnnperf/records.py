"""Measurements, one row each, in Parquet files with a schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.graph import MODES, OPTIMIZERS, PRECISIONS
from gnnperf.hardware import ATTENTION_IMPLEMENTATIONS, Software

STATUSES = ("ok", "error", "out_of_memory", "timeout")
_DIM = re.compile(r"[a-z_]+=[1-9][0-9]*")
_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
# Name and milliseconds of each node.
NodeTimes = tuple[tuple[str, float], ...]
_ARROW_TYPES["NodeTimes"] = pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True, slots=True)
class Record:
    """One timed run of a network.

    Attributes:
        source: Data set that the row comes from, or the campaign that measured it.
        source_file: File within the source.
        source_line: Line of that file, counted from 1.
        network: Zoo name, such as ``timm:resnet50``.
        family: Group of related architectures, for splits.
        device: Catalogue id.
        framework: As in ``Software``, like the next three.
        version: Of the framework.
        compiled: Whether a compiler fused ops.
        memory_format: Layout of images.
        mode: ``inference`` or ``training``.
        precision: One of ``gnnperf.graph.PRECISIONS``.
        batch_size: Samples in a step.
        image_size: Pixels of a side; 0 where there are no images.
        time_ms: Milliseconds of one step.
        label: What the time contains, such as ``forward``.
        reparameterized: Whether training-time branches were folded first, where the network has any.
        fast_norm: Whether norms stayed in the lower precision under autocast.
        optimizer: Of a training step, by its name in ``gnnperf.capture``; empty for none.
        dims: Sizes of further input dimensions, such as ``seq=512``; several with commas, empty for the network's own.
        attention: One of ``ATTENTION_IMPLEMENTATIONS``; empty for the default of the framework's version.
        parameter_count: Parameters of the network as the source reports them (rounded, maybe); 0 if it does not.
        node_times_ms: Of the nodes that the source timed, their names there and milliseconds. They need not be the
            nodes of a captured graph, nor add up to ``time_ms``.
        status: One of ``STATUSES``; ``time_ms`` is NaN unless it is ``ok``.
    """

    source: str
    source_file: str
    source_line: int
    network: str
    family: str
    device: str
    framework: str
    version: str
    compiled: bool
    memory_format: str
    mode: str
    precision: str
    batch_size: int
    image_size: int
    time_ms: float
    label: str
    reparameterized: bool = False
    fast_norm: bool = False
    optimizer: str = ""
    dims: str = ""
    attention: str = ""
    parameter_count: int = 0
    node_times_ms: NodeTimes = ()
    status: str = "ok"

    @property
    def software(self) -> Software:
        """What ran the network."""
        attention = self.attention or None
        return Software(self.framework, self.version, self.compiled, self.memory_format, attention)

    @property
    def is_layer(self) -> bool:
        """Whether a single layer or op was timed."""
        return self.network.startswith("layer:")

    def validate(self) -> None:
        """Check the row.

        Raises:
            ValueError: With the first wrong field and where the row comes from.
        """
        problem = self._problem()
        if problem:
            raise ValueError(f"{self.source_file}:{self.source_line}: {problem}")

    def _problem(self) -> str | None:
        if self.status not in STATUSES:
            return f"status {self.status!r} is not one of {', '.join(STATUSES)}"
        if self.mode not in MODES:
            return f"mode {self.mode!r} is not one of {', '.join(MODES)}"
        if self.optimizer not in ("", *OPTIMIZERS) or (self.optimizer and self.mode == "inference"):
            return f"optimizer {self.optimizer!r} is not one of {', '.join(OPTIMIZERS)} in a training step"
        if self.precision not in PRECISIONS:
            return f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}"
        if self.attention not in ("", *ATTENTION_IMPLEMENTATIONS):
            return f"attention {self.attention!r} is not one of {', '.join(ATTENTION_IMPLEMENTATIONS)}"
        try:
            parse_dims(self.dims)
        except ValueError as error:
            return str(error)
        if self.batch_size < 1 or self.image_size < 0 or self.parameter_count < 0:
            return "a size is negative, or the batch is empty"
        for name, node_ms in self.node_times_ms:
            if not (math.isfinite(node_ms) and node_ms >= 0):
                return f"time {node_ms} ms of node {name!r} is not a number of at least 0"
        if self.status == "ok" and not (math.isfinite(self.time_ms) and self.time_ms > 0):
            return f"time {self.time_ms} ms is not a positive number"
        if self.status != "ok" and not math.isnan(self.time_ms):
            return f"a row with status {self.status!r} has a time"
        return None


def parse_dims(text: str) -> dict[str, int]:
    """Sizes by name from text such as ``seq=512,decoder_seq=128``; none from empty text.

    Raises:
        ValueError: If it is written otherwise.
    """
    parts = text.split(",") if text else []
    if not all(_DIM.fullmatch(part) for part in parts):
        raise ValueError(f"dims {text!r} are not written as seq=512")
    return {name: int(size) for name, size in (part.split("=") for part in parts)}


SCHEMA = pa.schema([(field.name, _ARROW_TYPES[str(field.type)]) for field in fields(Record)])


def write_records(records: Iterable[Record], path: str | Path) -> None:
    """Write validated rows to a Parquet file.

    Raises:
        ValueError: If a row is wrong; nothing is written then.
    """
    rows = list(records)
    for record in rows:
        record.validate()
    columns = {name: [getattr(record, name) for record in rows] for name in SCHEMA.names}
    pq.write_table(pa.Table.from_pydict(columns, schema=SCHEMA), path)


def read_records(path: str | Path) -> list[Record]:
    """Read rows that ``write_records`` wrote.

    Raises:
        ValueError: If the file is not such a file, with what is wrong in it.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot read records from {str(path)!r}: {str(error).splitlines()[0]}") from error
    if not table.schema.equals(SCHEMA):
        missing = set(SCHEMA.names) - set(table.schema.names)
        what = f"missing {', '.join(sorted(missing))}" if missing else "other columns or types"
        raise ValueError(f"{str(path)!r} does not hold gnnperf records: {what}")
    columns = {name: table[name].to_pylist() for name in SCHEMA.names}
    columns["node_times_ms"] = [tuple(times) for times in columns["node_times_ms"]]
    records = [Record(*row) for row in zip(*columns.values(), strict=True)]
    for record in records:
        record.validate()
    return records
