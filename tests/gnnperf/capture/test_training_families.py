"""Training steps of one small architecture of every timm family, and of networks of other kinds."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from gnnperf import networks
from gnnperf.capture import capture, capture_owned
from gnnperf.cost import node_cost, unknown_ops
from gnnperf.graph import ComputationGraph

pytest.importorskip("timm")
FAMILIES = json.loads((Path(__file__).parents[2] / "data/timm_families.json").read_text())
TORCHVISION = """alexnet convnext_tiny deeplabv3_mobilenet_v3_large densenet121 efficientnet_b0 googlenet inception_v3
    mnasnet0_5 mobilenet_v2 regnet_y_400mf resnet18 shufflenet_v2_x0_5 squeezenet1_0 swin_t vgg11 vit_b_16""".split()


def check(graph: ComputationGraph) -> None:
    """It runs forward and back, at about twice the price, and every parameter is updated once."""
    graph.validate()
    assert unknown_ops(graph) == {}
    phases = {node.phase for node in graph.nodes}
    assert phases | {"loss"} == {"forward", "loss", "backward", "optimizer"}  # some compute their loss in the forward
    flops = {
        phase: sum(
            node_cost(node).flops
            for node in graph.nodes
            if node.phase == phase and node_cost(node).op_class in ("conv", "matmul", "attention")
        )
        for phase in ("forward", "backward")
    }
    assert 1.5 < flops["backward"] / flops["forward"] < 2.6
    update = graph.nodes[-1]
    gradients = sum(t.elements for t in update.inputs if t.kind == "gradient")
    assert update.op == "optimizer_step" and 0 < gradients <= graph.parameter_count


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    model = networks.build(f"timm:{FAMILIES[family]}", batch_size=2, mode="training")
    graph = capture_owned(model.module, model.example_inputs, "training", "amp", family, "momentum")
    check(graph)
    assert graph.rescale_error == ""


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name: str) -> None:
    pytest.importorskip("torchvision")
    model = networks.build(f"torchvision:{name}", batch_size=2, mode="training")
    check(capture_owned(model.module, model.example_inputs, "training", "fp32", name, "sgd"))


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2", "llama-7b", "switch-base-8"])
def test_language_models(name: str) -> None:
    pytest.importorskip("transformers")
    model = networks.build(f"hf:{name}", batch_size=2, dims={"seq": 64}, mode="training")
    check(capture_owned(model.module, model.example_inputs, "training", "amp_bf16", name, "adamw"))


def test_a_recurrent_language_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layers = nn.Embedding(100, 32), nn.LSTM(32, 32, 2, batch_first=True)
            self.scores = nn.Linear(32, 100)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.scores(self.layers(self.table(tokens))[0])

    def loss(scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores.flatten(0, 1), torch.zeros(4 * 12, dtype=torch.int64, device="meta"))

    tokens = torch.zeros(4, 12, dtype=torch.int64)
    graph = capture(Model(), tokens, mode="training", loss=loss, optimizer="adamw")
    assert unknown_ops(graph) == {} and {"lstm_backward", "embedding_backward"} <= {n.op for n in graph.nodes}
