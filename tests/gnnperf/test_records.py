import math
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.hardware import Software
from gnnperf.records import SCHEMA, parse_dims, read_records, write_records


def test_rows_come_back_as_they_were_written(tmp_path, record):
    rows = [
        record,
        replace(record, compiled=True, parameter_count=25_557_032, reparameterized=True),
        replace(record, dims="seq=512", attention="decomposed", node_times_ms=(("add", 0.5), ("add_1", 0.0))),
        replace(record, status="out_of_memory", time_ms=math.nan),
    ]
    write_records(rows, tmp_path / "rows.parquet")
    read = read_records(tmp_path / "rows.parquet")
    assert read[:3] == rows[:3]
    assert read[3].status == "out_of_memory" and math.isnan(read[3].time_ms)


def test_software_is_that_of_the_row(record):
    assert record.software == Software("torch", "2.4", False, "channels_first")
    assert record.software.attention == "fused"
    assert replace(record, attention="decomposed").software.attention == "decomposed"


def test_dims_are_read_from_text():
    assert parse_dims("") == {}
    assert parse_dims("seq=512,decoder_seq=8") == {"seq": 512, "decoder_seq": 8}
    for wrong in ("512", "seq=", "seq=0", "seq=1,", ",seq=1", "seq=1 2", "seq=-1"):
        with pytest.raises(ValueError, match="are not written as seq=512"):
            parse_dims(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"status": "fine"}, "status 'fine'"),
        ({"mode": "infer"}, "mode 'infer'"),
        ({"precision": "half"}, "precision 'half'"),
        ({"batch_size": 0}, "batch is empty"),
        ({"image_size": -1}, "negative"),
        ({"attention": "eager"}, "attention 'eager'"),
        ({"dims": "seq"}, "dims 'seq' are not written as seq=512"),
        ({"time_ms": 0.0}, "not a positive number"),
        ({"time_ms": math.inf}, "not a positive number"),
        ({"time_ms": math.nan}, "not a positive number"),
        ({"node_times_ms": (("add", -1.0),)}, "time -1.0 ms of node .add. is not"),
        ({"status": "timeout"}, "has a time"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_written(tmp_path, record, wrong, message):
    with pytest.raises(ValueError, match=rf"benchmark-one.csv:7: .*{message}"):
        write_records([record, replace(record, source_line=7, **wrong)], tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    with pytest.raises(ValueError, match="cannot read records"):
        read_records(path)
    path.write_text("time_ms\n1.0\n")
    with pytest.raises(ValueError, match="cannot read records"):
        read_records(path)
    pq.write_table(pa.table({"time_ms": [1.0]}), path)
    with pytest.raises(ValueError, match=r"does not hold gnnperf records: missing .*batch_size"):
        read_records(path)
    pq.write_table(pa.table({name: ["text"] for name in SCHEMA.names}), path)
    with pytest.raises(ValueError, match="other columns or types"):
        read_records(path)
