from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from data_collection.neusight_kernels import OPS, import_neusight_kernels
from gnnperf import networks
from gnnperf.cost import node_cost
from gnnperf.dataset import build_dataset
from gnnperf.graph_store import GraphStore, Network
from gnnperf.hardware import device_ids
from gnnperf.records import Record, read_records, write_records

ROW = {"Latency": 0.5, "Device": "Tesla V100-PCIE-32GB", "Torch Version": "p2.1.0"}
MATRICES = {"B": 2, "M": 3, "N": 5, "K": 7}
VECTORS = {"B": 4, "H": 9}
IMAGES = {
    "B": 2,
    "Input_Channel": 3,
    "Output_Channel": 8,
    "Kernel_Szie": 3,  # so spelled
    "Input_Size": 5,
    "Stride": 1,
    "Padding": 1,
}
SIZES = {"bmm": MATRICES, "linear": MATRICES, "conv": IMAGES}


def _row(op: str, **others: object) -> dict[str, object]:
    return {"OPName": op, **ROW, **SIZES.get(op, VECTORS), **others}


def _write(folder: Path, name: str, *rows: dict[str, object]) -> str:
    path = folder / "scripts" / "asplos" / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)
    return str(path.relative_to(folder))


def _imported(folder: Path, op: str, **others: object) -> Record:
    _write(folder, f"dataset/train/collect/{op}/p2.1.0/x.csv", _row(op, **others))
    (record,) = import_neusight_kernels(folder).records
    record.validate()
    return record


def test_a_kernel(tmp_path):
    record = _imported(tmp_path, "bmm")
    assert record.network == "layer:matmul,rows=3,depth=5,columns=7" and record.family == "matmul"
    assert (record.device, record.framework, record.version) == ("v100-pcie-32gb", "torch", "2.1")
    assert (record.mode, record.precision, record.compiled) == ("inference", "fp32", False)
    assert (record.batch_size, record.image_size, record.time_ms) == (2, 0, 0.5)
    assert (record.label, record.source_line) == ("forward of one op", 2)
    assert record.source_file == "scripts/asplos/data/dataset/train/collect/bmm/p2.1.0/x.csv"


def test_a_convolution_has_the_side_of_its_images(tmp_path):
    record = _imported(tmp_path, "conv")
    assert record.network == "layer:conv2d,channels_in=3,channels_out=8,kernel=3,stride=1,padding=1"
    assert (record.batch_size, record.image_size) == (2, 5)


# Of every op: what it runs as, shapes of its operands, FLOPs, and elements that it reads and writes.
HAND_WORKED = {
    "bmm": ("matmul", [(2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7, 30 + 70 + 42),
    "linear": ("linear", [(2, 3, 5), (7, 5), (7,)], 2 * 2 * 3 * 5 * 7 + 42, 30 + 35 + 7 + 42),
    "conv": ("conv", [(2, 3, 5, 5), (8, 3, 3, 3)], 2 * 400 * 27, 150 + 216 + 400),
    "ln": ("layer_norm", [(4, 9), (9,), (9,)], 7 * 36, 36 + 9 + 9 + 36 + 4 + 4),
    "softmax": ("softmax", [(4, 9)], 12 * 36, 72),
    "relu": ("relu", [(4, 9)], 36, 72),
    "tanh": ("tanh", [(4, 9)], 8 * 36, 72),
    "gelu": ("gelu", [(4, 9)], 16 * 36, 72),
    **{op: (op, [(4, 9), (4, 9)], 36, 108) for op in ("add", "mul", "div")},
    "pow": ("pow", [(4, 9), (4, 9)], 8 * 36, 108),
    **{f"{op}u": (op, [(4, 9)], 36, 72) for op in ("add", "mul", "div")},
    "powu": ("pow", [(4, 9)], 8 * 36, 72),
}


@pytest.mark.parametrize("op", OPS)
def test_its_graph_is_the_one_op_with_the_operands_that_ran(tmp_path, op):
    record = _imported(tmp_path, op)
    network = Network(record.network, record.image_size, record.mode, record.precision)
    (node,) = GraphStore(tmp_path / "cache").graph(network, record.batch_size).nodes
    name, shapes, flops, elements = HAND_WORKED[op]
    assert node.op == name and [t.shape for t in node.inputs] == shapes
    assert all(t.layout == "row_major" and t.dtype == "float32" for t in (*node.inputs, *node.outputs))
    assert (node_cost(node).flops, node_cost(node).bytes) == (flops, 4 * elements)


def test_tables_without_a_version_have_it_in_their_folder(tmp_path):
    row = _row("add", Device="AMD Instinct MI210")
    del row["Torch Version"]
    _write(tmp_path, "dataset_amd/train/collect/add/p2.4.1/AMD Instinct MI210.csv", row)
    (record,) = import_neusight_kernels(tmp_path).records
    assert (record.device, record.version) == ("mi210", "2.4")


def test_training_rows_are_told_from_test_rows_by_their_file(tmp_path):
    train = _write(tmp_path, "dataset/train/collect/add/p2.1.0/x.csv", _row("add"))
    test = _write(tmp_path, "dataset/test/elem.csv", _row("add", B=16384), _row("relu", B=16384))
    _write(tmp_path, "dataset/test/collect/add/p2.1.0/x.csv", _row("add"))  # what elem.csv was merged from
    _write(tmp_path, "dataset/train/add.csv", _row("add"))  # merged from x.csv
    other = _write(tmp_path, "dataset_amd/test/collect/bmm/p2.4.1/x.csv", _row("bmm"))
    records = import_neusight_kernels(tmp_path).records
    assert Counter(r.source_file for r in records) == {train: 1, test: 2, other: 1}
    assert [r.source_line for r in records if r.source_file == test] == [2, 3]


def test_what_is_left_out_is_counted(tmp_path):
    name = "dataset/train/collect/add/p2.1.0/x.csv"
    latencies = [_row("add", Latency=value) for value in (None, 0, -1.0, "fast", float("inf"))]
    others = [_row("add", Device="Voodoo2"), _row("sub"), _row("add", **{"Torch Version": "2"}), _row("add")]
    _write(tmp_path, name, *latencies, *others)
    imported = import_neusight_kernels(tmp_path)
    assert len(imported.records) == 1 and imported.records[0].source_line == 10
    assert imported.skipped == {
        "no measurement": 5,
        "device not known": 1,
        "op not known": 1,
        "torch version not known": 1,
    }


def test_a_sample_is_the_same_each_time(tmp_path):
    for device in ("a", "b"):
        rows = [_row("add", B=number) for number in range(1, 41)]
        _write(tmp_path, f"dataset/train/collect/add/p2.1.0/{device}.csv", *rows)
    first = import_neusight_kernels(tmp_path, limit_per_file=5)
    assert len(first.records) == 10 and first.skipped == {"not drawn for the sample": 70}
    assert import_neusight_kernels(tmp_path, limit_per_file=5).records == first.records
    assert import_neusight_kernels(tmp_path, limit_per_file=5, seed=1).records != first.records
    a, b = first.records[:5], first.records[5:]
    assert [r.batch_size for r in a] == [r.batch_size for r in b]  # the same shapes on every device


def test_damaged_files_and_wrong_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_neusight_kernels(tmp_path)
    with pytest.raises(ValueError, match="limit_per_file must be at least 1, not 0"):
        import_neusight_kernels(tmp_path, limit_per_file=0)
    name = "dataset/test/bmm.csv"
    for row, message in (
        ({"B": 1}, r"bmm\.csv: not a table of timed kernels \(it lacks Device, Latency, OPName\)"),
        ({"OPName": "bmm", **ROW, "B": 1}, r"bmm\.csv: not a table of timed kernels \(it lacks K, M, N\)"),
        (_row("bmm", M=0), r"bmm\.csv:2: the sizes B, M, N, K must be whole numbers of at least 1"),
        (_row("bmm", K=1.5), r"bmm\.csv:2: the sizes B, M, N, K must be whole numbers of at least 1"),
    ):
        path = _write(tmp_path, name, row)
        with pytest.raises(ValueError, match=message):
            import_neusight_kernels(tmp_path)
    (tmp_path / path).write_text("")
    with pytest.raises(ValueError, match=r"bmm\.csv: not a table \(No columns"):
        import_neusight_kernels(tmp_path)


@pytest.fixture(scope="module")
def clone(real_clone) -> Path:
    return real_clone("GNNPERF_NEUSIGHT_RESULTS", "sitar-lab/NeuSight")


def test_the_real_files_are_read(clone, tmp_path):
    imported = import_neusight_kernels(clone, limit_per_file=200)
    assert set(imported.skipped) == {"not drawn for the sample"}
    assert len(imported.records) > 10_000
    assert {r.device for r in imported.records} <= set(device_ids())
    assert {r.device for r in imported.records} >= {"p4", "t4", "l4", "a100-pcie-80gb", "v100-pcie-32gb", "mi100"}
    write_records(imported.records, tmp_path / "records.parquet")
    assert read_records(tmp_path / "records.parquet") == imported.records


def test_the_real_tables_list_a_kernel_for_the_bias_of_linear_layers(clone):
    folder = clone / "scripts" / "asplos" / "data"
    tables = [
        *folder.glob("dataset/train/collect/linear/*/*.csv"),
        *folder.glob("dataset_amd/*/collect/linear/*/*.csv"),
    ]
    assert tables
    for path in tables:
        rows = pd.read_csv(path)
        copied = rows.Kernels.fillna("").str.contains("copy_kernel")
        assert copied[rows.N == 1].all() and (path.stem.startswith("AMD") == copied.all())


def test_real_kernels_have_graphs(clone, tmp_path):
    drawn = import_neusight_kernels(clone, limit_per_file=3).records
    dataset = build_dataset(drawn, tmp_path)
    assert len(dataset.samples) == len(drawn) and not dataset.skipped
    assert all(graph.num_nodes == 1 for graph in dataset.graphs)
    assert len(list(tmp_path.rglob("*.*"))) < 10  # not a file for each


def test_a_real_kernel_is_no_faster_than_its_device_allows(clone):
    # In fp32 an A100 does 19.5e12 FLOPs a second; with TF32 it would do more.
    drawn = [r for r in import_neusight_kernels(clone, limit_per_file=2000).records if r.device == "a100-pcie-40gb"]
    for record in drawn:
        if record.family in ("matmul", "linear") and "/test/" in record.source_file:
            model = networks.build(record.network, record.batch_size)
            shapes = [t.shape for t in model.example_inputs] + [p.shape for p in model.module.parameters()]
            flops = 2 * shapes[0].numel() * shapes[1][-1 if record.family == "matmul" else 0]
            assert flops / record.time_ms * 1e3 < 19.5e12
