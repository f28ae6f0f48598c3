from dataclasses import replace

import pytest
import torch

import gnnperf
import gnnperf.graph_store as graph_store
import gnnperf.packed_graphs as packed_graphs
from gnnperf.dataset import build_dataset
from gnnperf.features import graph_data
from gnnperf.packed_graphs import PackedGraphs

FACTS = {"parameter_count": 3, "content": "abc"}
# A graph with edges, one of a single op, and one with other sizes.
NAMES = [
    "linear,features_in=3,features_out=4,bias,relu",
    "add,features=8",
    "conv2d,channels_in=1,channels_out=1,kernel=3",
]


@pytest.fixture(scope="module")
def data():
    return {name: graph_data(gnnperf.zoo(f"layer:{name}")).to_dict() for name in NAMES}


def _same(entry, expected):
    facts, found = entry
    assert facts == FACTS and found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[key].dtype == value.dtype and torch.equal(found[key], value), key
        else:
            assert found[key] == value


def test_what_is_read_is_what_was_added(data, tmp_path):
    packed = PackedGraphs(tmp_path / "packs")
    for key, entry in data.items():
        packed.add(key, FACTS, entry)
        _same(packed.get(key), entry)
    packed.flush()
    packed.flush()
    assert len(list((tmp_path / "packs").iterdir())) == 1
    again = PackedGraphs(tmp_path / "packs")
    for key, entry in data.items():
        _same(again.get(key), entry)
    assert again.get("another") is None


def test_a_full_pack_is_written_and_packs_add_up(data, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_graphs, "PACK_SIZE", 2)
    packed = PackedGraphs(tmp_path)
    for key, entry in data.items():
        packed.add(key, FACTS, entry)
    assert len(list(tmp_path.iterdir())) == 1  # the third is lost without flush
    other = PackedGraphs(tmp_path)
    assert other.get(NAMES[2]) is None
    other.add(NAMES[2], FACTS, data[NAMES[2]])
    other.flush()
    again = PackedGraphs(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    for key, entry in data.items():
        _same(again.get(key), entry)


def test_layers_of_records_share_files_and_come_from_them_again(record, tmp_path, monkeypatch):
    rows = [
        replace(record, network=f"layer:{op},features={size}", image_size=0, batch_size=batch)
        for op in ("add", "tanh")
        for size in (4, 5)
        for batch in (1, 7)
    ]
    first = build_dataset([*rows, replace(rows[0], network="layer:add,features=0")], tmp_path)
    assert len(first.samples) == len(first.graphs) == 8 and first.skipped.total() == 1
    assert len(list(tmp_path.rglob("*.pt"))) == 1
    assert not list(tmp_path.rglob("*.json.gz"))
    monkeypatch.setattr(graph_store, "_capture", lambda *_: pytest.fail("captured again"))
    again = build_dataset(rows, tmp_path)
    assert [s.record for s in again.samples] == [s.record for s in first.samples]
    for a, b in zip(first.graphs, again.graphs, strict=True):
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a.keys() if k != "num_nodes")
    monkeypatch.undo()
    more = build_dataset([*rows, replace(rows[0], batch_size=2)], tmp_path)
    assert len(more.graphs) == 9 and len(list(tmp_path.rglob("*.pt"))) == 2


def test_workers_fill_the_same_files(record, tmp_path):
    rows = [replace(record, network=f"layer:add,features={n}", image_size=0) for n in (3, 4)]
    alone, shared = build_dataset(rows, tmp_path / "a"), build_dataset(rows, tmp_path / "b", workers=2)
    assert alone.samples == shared.samples
    names = [sorted(p.name for p in (tmp_path / part).rglob("*.pt")) for part in ("a", "b")]
    assert names[0] == names[1] and len(names[0]) == 1
