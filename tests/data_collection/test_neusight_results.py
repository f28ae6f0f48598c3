import ast
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from data_collection.neusight_results import NETWORKS, import_neusight
from gnnperf import networks
from gnnperf.aggregates import node_table
from gnnperf.cost import node_cost
from gnnperf.dataset import build_dataset
from gnnperf.graph_store import GraphStore, Network
from gnnperf.hardware import device_ids

pytest.importorskip("transformers")

RUN = {"num_layer": 24, "e2e_latency": 100.0, "fw_latency": 40.0, "bwall_latency": 60.0}


def _write(folder: Path, name: str, content: object = RUN, device: str = "Tesla_V100-PCIE-32GB") -> None:
    path = folder / "scripts" / "asplos" / "label" / device / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_a_forward_pass(tmp_path):
    _write(tmp_path, "bert_large-inf-512-8.json")
    (record,) = import_neusight(tmp_path).records
    record.validate()
    assert record.network == "hf:bert-large-uncased-for-sequence-classification" and record.family == "bert"
    assert (record.device, record.precision, record.mode) == ("v100-pcie-32gb", "fp32", "inference")
    assert (record.batch_size, record.dims, record.image_size, record.time_ms) == (8, "seq=512", 0, 100.0)
    assert (record.software.compiled, record.software.attention, record.label) == (False, "decomposed", "forward")
    assert record.source_file == "scripts/asplos/label/Tesla_V100-PCIE-32GB/bert_large-inf-512-8.json"


def test_a_training_step_has_no_optimizer_and_bert_another_head(tmp_path):
    _write(tmp_path, "bert_large-train-512-2.json")
    (record,) = import_neusight(tmp_path).records
    record.validate()
    assert record.network == "hf:bert-large-uncased-for-pretraining"
    assert (record.mode, record.optimizer, record.label) == ("training", "", "forward, loss, backward")
    assert record.time_ms == 100.0  # of the whole step


def test_a_fused_run_is_compiled(tmp_path):
    _write(tmp_path, "gpt2_large-inf-1024-4-fusion.json")
    (record,) = import_neusight(tmp_path).records
    record.validate()
    assert record.software.compiled and record.software.attention == "decomposed"


NODES = """op,target,latency,fw_latency,dtype,Name
placeholder,input_ids,0.0,0.0,torch.int64,input_ids
call_method,size,0.011,0.011,,size
call_module,bert.embeddings,0.5,0.2,torch.float32,bert_embeddings
call_function,<built-in function add>,0.25,0.25,torch.float32,add
"""


def test_times_of_nodes_are_kept_by_the_names_of_the_table(tmp_path):
    _write(tmp_path, "bert_large-inf-512-8.json")
    _write(tmp_path, "bert_large-inf-512-8.csv", NODES)
    (record,) = import_neusight(tmp_path).records
    record.validate()
    assert record.node_times_ms == (("bert_embeddings", 0.5), ("add", 0.25))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"not a table \(No columns"),
        ("a,b\n1,2\n", r"not a table of timed nodes \(it lacks Name, dtype, latency, op\)"),
        (NODES.replace("0.25,0.25", "quick,0"), "a latency is not a number of milliseconds"),
    ],
)
def test_damaged_tables_of_nodes_are_named(tmp_path, text, message):
    _write(tmp_path, "bert_large-inf-512-8.json")
    _write(tmp_path, "bert_large-inf-512-8.csv", text)
    with pytest.raises(ValueError, match=rf"V100-PCIE-32GB/bert_large-inf-512-8\.csv: {message}"):
        import_neusight(tmp_path)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("AMD_Instinct_MI100", "mi100"),
        ("AMD_Instinct_MI210", "mi210"),
        ("NVIDIA_A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA_A100_80GB_PCIe", "a100-pcie-80gb"),
        ("NVIDIA_L4", "l4"),
        ("Tesla_P4", "p4"),
    ],
)
def test_folders_are_devices(tmp_path, device, expected):
    _write(tmp_path, "opt_13-inf-2048-2.json", device=device)
    (record,) = import_neusight(tmp_path).records
    assert record.device == expected and record.device in device_ids()


@pytest.mark.parametrize(("network", "mode"), [(n, m) for n in NETWORKS for m in ("inf", "train")])
def test_every_network_is_in_the_zoo(tmp_path, network, mode):
    _write(tmp_path, f"{network}-{mode}-128-2.json")
    (record,) = import_neusight(tmp_path).records
    model = networks.build(record.network, 2, dims={"seq": 128}, mode=record.mode)
    assert model.example_inputs["input_ids"].shape == (2, 128)


def test_its_graph_is_that_of_the_network_with_attention_in_its_parts(tmp_path):
    _write(tmp_path, "opt_13-inf-2048-2.json")
    dataset = build_dataset(import_neusight(tmp_path).records, tmp_path / "cache")
    (sample,) = dataset.samples
    table = node_table(dataset, sample)
    # 24 layers of width h over t tokens: 12 h^2 weights each, scores and their use 2 s h each; and the vocabulary.
    seq, width, tokens = 2048, 2048, 2 * 2048
    products = 2 * tokens * (24 * (12 * width**2 + 2 * seq * width) + 50_272 * width)
    assert (table.flops * table.count).sum() == pytest.approx(products, rel=0.02)
    # Decomposed, the scores of 32 heads are written and read several times.
    scores_bytes = 4 * 2 * 32 * seq**2
    assert (table.bytes * table.count).sum() > 24 * 4 * scores_bytes


def test_what_is_left_out_is_counted(tmp_path):
    for option in ("dp4", "tp4", "pp4_1"):
        _write(tmp_path, f"gpt2_large-train-1024-4-{option}.json")
    for name in ("switch4-inf-512-1", "switchxl4-inf-512-2"):
        _write(tmp_path, f"{name}.json")
    _write(tmp_path, "gpt5-inf-512-1.json")
    _write(tmp_path, "gpt2_large-inf.json")
    _write(tmp_path, "gpt2_large-inf-1024-4-magic.json")
    _write(tmp_path, "gpt2_large-inf-1024-4.json", device="Voodoo2")
    for batch, latency in enumerate((None, 0, math.nan, -1.0), start=1):
        _write(tmp_path, f"gpt2_large-inf-1024-{batch}.json", {"e2e_latency": latency})
    _write(tmp_path, "gpt2_large-inf-1024-9.json", {"num_layer": 36})
    imported = import_neusight(tmp_path)
    assert not imported.records
    assert imported.skipped == {
        "several GPUs": 3,
        "mixture of experts: where its tokens went, and how many were dropped, is not known": 2,
        "network not known": 1,
        "file name not understood or device not known": 3,
        "no measurement": 5,
    }


@pytest.mark.parametrize("content", ["{", "[1]", '{"e2e_latency": "fast"}', '{"e2e_latency": [1]}'])
def test_damaged_files_are_named(tmp_path, content):
    _write(tmp_path, "gpt2_large-inf-1024-4.json", content)
    with pytest.raises(ValueError, match=r"V100-PCIE-32GB/gpt2_large-inf-1024-4\.json: not the result of a run"):
        import_neusight(tmp_path)


def test_a_wrong_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_neusight(tmp_path)


@pytest.fixture(scope="module")
def clone(real_clone) -> Path:
    return real_clone("GNNPERF_NEUSIGHT_RESULTS", "sitar-lab/NeuSight")


def test_the_real_files_are_read_whole(clone):
    imported = import_neusight(clone)
    files = list((clone / "scripts" / "asplos" / "label").glob("*/*.json"))
    assert len(imported.records) + imported.skipped.total() == len(files)
    assert len(imported.records) >= 87
    assert {reason.partition(":")[0] for reason in imported.skipped} <= {"several GPUs", "mixture of experts"}
    for record in imported.records:
        record.validate()
    # Each run but the fused ones has a table of nodes; one layer of many ran faster than the whole network.
    assert all(record.compiled != bool(record.node_times_ms) for record in imported.records)
    assert all(sum(ms for _, ms in record.node_times_ms) < record.time_ms for record in imported.records)


def _products(table: pd.DataFrame, layers: int) -> int:
    """FLOPs of the matrix products of a node table, in which one of ``layers`` equal layers stands for all."""
    total = 0
    inside = table.target.str.contains(r"layer\.0|layers\.0|\.h\.0")
    first, last = inside.idxmax(), inside[::-1].idxmax()
    for row in table.itertuples():
        name, shapes = str(row.target), ast.literal_eval(row.input_shapes)
        linear = row.op == "call_module" and name.endswith(
            (
                *("query", "key", "value", "dense", "decoder", "classifier", "seq_relationship"),
                *("_proj", "fc1", "fc2", "lm_head"),
            )
        )
        product = row.op == "call_function" and any(word in name for word in ("matmul", "bmm", "addmm"))
        if linear or product:
            depth = shapes[1 if "addmm" in name else 0][-1]
            repeats = layers if first <= row.Index <= last else 1
            total += repeats * 2 * depth * math.prod(ast.literal_eval(row.output_shape))
    return total


@pytest.mark.parametrize(
    "run",
    [
        "bert_large-inf-512-8",
        "bert_large-train-512-8",
        "gpt2_large-inf-1024-4",
        "gpt3_xl-inf-2048-2",
        "gpt3_27-inf-2048-2",
        "opt_13-inf-2048-2",
    ],
)
def test_graphs_hold_the_products_of_the_real_node_tables(clone, run, tmp_path):
    folder = clone / "scripts" / "asplos" / "label" / "Tesla_V100-PCIE-32GB"
    layers = json.loads((folder / f"{run}.json").read_text())["num_layer"]
    expected = _products(pd.read_csv(folder / f"{run}.csv"), layers)
    (record,) = (r for r in import_neusight(clone).records if r.source_file.endswith(f"V100-PCIE-32GB/{run}.json"))
    network = Network(record.network, 0, record.mode, "fp32", dims=record.dims)
    graph = GraphStore(tmp_path).graph(network, record.batch_size)
    costs = [node_cost(n, "decomposed") for n in graph.nodes if n.phase == "forward"]
    assert sum(cost.flops for cost in costs if cost.matrix) == pytest.approx(expected, rel=0.01)
