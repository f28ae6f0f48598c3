"""Kernels of compiled graphs, and their bytes by hand; layouts as torch's own Inductor decides them."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import gnnperf
from gnnperf.cost.compiled_layout import compiles_to_channels_last
from gnnperf.cost.fusion import fused_costs, kernel_numbers, software_costs
from gnnperf.cost.registry import node_cost
from gnnperf.graph import ComputationGraph
from gnnperf.hardware import Software

COMPILED = Software(compiled=True)


def captured(module: nn.Module, *shape: int) -> ComputationGraph:
    return gnnperf.capture(module.eval(), (torch.zeros(shape),))


def kernels(graph: ComputationGraph) -> list[list[str]]:
    """The ops of every kernel."""
    groups: dict[int, list[str]] = {}
    for node, number in zip(graph.nodes, kernel_numbers(graph), strict=True):
        groups.setdefault(number, []).append(node.op)
    return list(groups.values())


def by_op(graph: ComputationGraph) -> dict[str, tuple[float, float, int]]:
    costs = software_costs(graph, COMPILED)
    return {n.op: (c.bytes_read, c.bytes_written, c.kernels) for n, c in zip(graph.nodes, costs, strict=True)}


def test_what_follows_a_convolution_is_one_kernel() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())
    graph = captured(net, 2, 3, 16, 16)
    assert kernels(graph) == [["conv"], ["batch_norm", "silu"]]
    image = 4 * 2 * 8 * 256
    costs = by_op(graph)
    assert costs["batch_norm"] == (image + 4 * 4 * 8, 0, 1)
    assert costs["silu"] == (0, image, 0)
    assert costs["conv"][1] == image


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return x + torch.tanh(self.linear(self.norm(x)))


def test_a_reduction_joins_what_walks_the_same_elements_and_what_others_read_is_written() -> None:
    graph = captured(Residual(), 4, 7, 32)
    assert kernels(graph) == [["relu", "layer_norm"], ["linear"], ["tanh", "add"]]
    size = 4 * 4 * 7 * 32
    costs = by_op(graph)
    assert costs["relu"] == (size, size, 1)  # the addition reads it once more
    assert costs["layer_norm"] == (2 * 4 * 32, size + 2 * 4 * 28, 0)  # and every mean and deviation
    assert costs["add"] == (size, size, 0)


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.a(x)) + self.b(x).sigmoid()


def test_what_one_kernel_alone_reads_is_computed_inside() -> None:
    graph = captured(TwoBranches(), 4, 8)
    assert sorted(map(sorted, kernels(graph))) == [["add", "relu", "sigmoid"], ["linear"], ["linear"]]


class Gate(nn.Module):
    """A gate that a product and its reader need: fused in a ring, the two kernels would wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y * self.linear(y)


def test_no_kernel_waits_for_itself() -> None:
    graph = captured(Gate(), 4, 8)
    assert kernels(graph) == [["exp"], ["linear"], ["mul"]]
    costs = by_op(graph)
    assert costs["mul"][0] == 2 * 4 * 32


def test_pooling_wants_its_operand_in_memory() -> None:
    graph = captured(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Tanh()), 2, 3, 8, 8)
    assert kernels(graph) == [["relu"], ["max_pool", "tanh"]]


@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:test_vit", "timm:test_efficientnet", "timm:test_convnext"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_kernels_of_networks_follow_one_another(name: str, mode: str) -> None:
    graph = gnnperf.zoo(name, 2, mode=mode)
    numbers = kernel_numbers(graph)
    eager = [node_cost(node) for node in graph.nodes]
    costs = fused_costs(graph, eager, numbers)
    assert len(set(numbers)) < len(numbers)
    assert sum(c.bytes for c in costs) < sum(c.bytes for c in eager)
    assert all(c.flops == e.flops for c, e in zip(costs, eager, strict=True))
    after: dict[int, set[int]] = {number: set() for number in numbers}
    for edge in graph.edges:
        if numbers[edge.source] != numbers[edge.target]:
            after[numbers[edge.source]].add(numbers[edge.target])
    done: set[int] = set()

    def visit(number: int, path: tuple[int, ...]) -> None:
        assert number not in path, "two kernels wait for each other"
        if number not in done:
            for other in after[number]:
                visit(other, (*path, number))
            done.add(number)

    for number in after:
        visit(number, ())


def test_without_a_compiler_nothing_is_fused() -> None:
    graph = captured(Residual(), 4, 7, 32)
    assert software_costs(graph, Software()) == [node_cost(node) for node in graph.nodes]


def _inductor_decides(module: nn.Module, *shape: int) -> bool:
    """What Inductor itself says of the network, as if it were not on a CPU."""
    from torch._inductor.graph import GraphLowering
    from torch._subclasses import FakeTensorMode
    from torch.func import functional_call

    values = {name: value.detach() for name, value in module.eval().state_dict().items()}

    def run(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(module, values, (x,))

    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        traced = make_fx(run)(values, torch.zeros(shape))
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return GraphLowering.decide_layout_opt(traced, is_inference=True)
    finally:
        torch._C._set_mkldnn_enabled(enabled)


NETWORKS = {
    "wide": nn.Sequential(nn.Conv2d(3, 128, 3), nn.ReLU(), nn.Conv2d(128, 128, 3)),
    "small": nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3)),
    "grouped": nn.Sequential(nn.Conv2d(3, 64, 1), nn.Conv2d(64, 128, 3, groups=2)),
    "narrowing": nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 64, 3)),
    "depthwise": nn.Sequential(nn.Conv2d(3, 96, 1), nn.Conv2d(96, 96, 3, groups=96), nn.Conv2d(96, 24, 1)),
    "none": nn.Sequential(nn.Flatten(), nn.Linear(3 * 256, 4)),
    "mixed": nn.Sequential(nn.Conv2d(3, 128, 5, groups=1), nn.Conv2d(128, 256, 5, groups=4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_layout_is_the_one_that_inductor_takes(name: str) -> None:
    graph = captured(NETWORKS[name], 2, 3, 16, 16)
    costs = [node_cost(node) for node in graph.nodes]
    assert compiles_to_channels_last(graph, costs) == _inductor_decides(NETWORKS[name], 2, 3, 16, 16)
