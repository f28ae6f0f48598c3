"""Training steps: what runs after the forward pass, and what it costs by hand and by torch's own counter."""

import copy

import pytest
import torch
from graph_queries import Wrapped, links, named, only, ops
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from gnnperf import networks
from gnnperf.capture import capture, capture_owned
from gnnperf.capture.optimizers import NAMED
from gnnperf.capture.step import default_loss
from gnnperf.cost import node_cost, unknown_ops
from gnnperf.graph import OPTIMIZERS, ComputationGraph, Node

X = torch.randn(4, 8)


def step(module: nn.Module, x: object = X, **options: object) -> ComputationGraph:
    return capture(module, x, mode="training", **options)  # type: ignore[arg-type]


def squares(output: torch.Tensor) -> torch.Tensor:
    return output.square().sum()


def phases(graph: ComputationGraph) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        found.setdefault(node.phase, []).append(node.op)
    return found


def test_a_step_is_forward_loss_backward_and_update() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    assert phases(step(module, optimizer="sgd")) == {
        "forward": ["linear", "relu", "linear"],
        "loss": ["log_softmax", "nll_loss"],
        "backward": "fill nll_loss_backward log_softmax_backward linear_backward relu_backward linear_backward".split(),
        "optimizer": ["optimizer_step"],
    }
    assert "optimizer" not in phases(step(module))


def test_backward_ops_belong_to_the_module_whose_forward_they_differentiate() -> None:
    graph = step(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5)))
    places = {(node.op, node.module) for node in graph.nodes if node.module}
    for module, op in (("0", "linear"), ("1", "gelu"), ("2", "linear")):
        assert {(op, module), (f"{op}_backward", module)} <= places


def test_gradients_of_a_linear_layer_by_hand() -> None:
    graph = step(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 5)), loss=squares)
    last, first = named(graph, "linear_backward")
    assert last.attributes["gradients"] == [0, 1, 2] and first.attributes["gradients"] == [1, 2]  # data needs none
    priced = node_cost(last)
    assert priced.flops == 2 * (2 * 4 * 16 * 5) + 4 * 5
    gradient, data, weight = 4 * 5 * 4, 4 * 16 * 4, 5 * 16 * 4
    assert priced.bytes_read == 3 * gradient + data + weight
    assert priced.bytes_written == data + weight + 5 * 4
    assert priced.parameter_bytes == weight
    assert node_cost(first).flops == 2 * 4 * 8 * 16 + 4 * 16


def test_gradients_of_a_convolution_by_hand() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Conv2d(4, 6, 3, stride=2, groups=2))
    graph = step(module, torch.randn(2, 3, 9, 9), loss=squares)
    last, first = named(graph, "conv_backward")
    forward = named(graph, "conv")
    assert last.attributes["gradients"] == [0, 1, 2] and first.attributes["gradients"] == [1]
    out = 2 * 6 * 4 * 4
    assert node_cost(last).flops == 2 * (2 * out * 2 * 9) + out
    assert node_cost(first).flops == node_cost(forward[0]).flops
    gradient, data, weight = out * 4, 2 * 4 * 9 * 9 * 4, 6 * 2 * 9 * 4
    assert node_cost(last).bytes_read == 3 * gradient + data + weight
    assert node_cost(last).bytes_written == data + weight + 6 * 4


def test_what_is_frozen_costs_nothing_backward() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    module[0].requires_grad_(False)
    graph = step(module, optimizer="sgd")
    assert ops(graph).count("linear_backward") == 1 and "relu_backward" not in ops(graph)
    assert node_cost(only(graph, "optimizer_step")).bytes == (2 + 1) * 4 * (8 * 5 + 5)
    module.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train: the loss depends on no parameter"):
        step(module)


@pytest.mark.parametrize(
    ("optimizer", "bytes_a_parameter"),
    [
        ("sgd", 4 + 4 + 4),  # read weight and gradient, write weight
        ("momentum", 4 + 4 + 4 + 4 + 4),  # and read and write the momentum
        ("adam", 28),
        ("adamw", 28),
        (torch.optim.AdamW, 28),
        ("adagrad", 20),
        ("adadelta", 28),
        ("rmsprop", 20),
        (torch.optim.Adamax, 28),
        (torch.optim.NAdam, 28),
    ],
)
def test_an_update_moves_what_its_state_says(optimizer: object, bytes_a_parameter: int) -> None:
    module = nn.Linear(32, 64)
    graph = step(module, torch.randn(4, 32), optimizer=optimizer)
    update = node_cost(only(graph, "optimizer_step"))
    parameters = 32 * 64 + 64
    assert update.bytes == bytes_a_parameter * parameters
    assert update.flops >= parameters
    state = (bytes_a_parameter - 12) // 8
    assert graph.optimizer_state_bytes == state * 4 * parameters


def test_every_optimizer_of_the_vocabulary_has_a_class() -> None:
    assert tuple(NAMED) == OPTIMIZERS


def test_an_optimizer_of_the_user_is_taken_over_and_left_alone() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.BatchNorm1d(8), nn.Linear(8, 5))
    optimizer = torch.optim.SGD([{"params": module[0].parameters()}, {"params": module[3].parameters()}], 0.1, 0.9)
    nn.functional.cross_entropy(module(X), torch.zeros(4, dtype=torch.int64)).backward()
    optimizer.step()
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict(), [p.grad for p in module.parameters()]))
    random_state, module_mode = torch.get_rng_state(), module.eval().training
    graph = step(module, optimizer=optimizer)
    assert node_cost(only(graph, "optimizer_step")).bytes == 20 * (72 + 45)
    after = (module.state_dict(), optimizer.state_dict(), [p.grad for p in module.parameters()])
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state) and module.training == module_mode


def test_attention_and_recurrent_layers_are_one_node_each_way() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.mix = nn.LSTM(8, 8, 2, batch_first=True), nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.mix(self.lstm(x)[0]).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    graph = step(Both(), torch.randn(3, 5, 8))
    assert only(graph, "linear_backward").module == "mix"
    for op in ("lstm", "attention"):
        forward, backward = only(graph, op), only(graph, f"{op}_backward")
        assert (forward.name, backward.name) in links(graph)
    pairs = 3 * 2 * 5 * 5
    assert node_cost(only(graph, "attention")).flops == 2 * pairs * (4 + 4)
    assert node_cost(only(graph, "attention_backward")).flops == 2 * pairs * (3 * 4 + 2 * 4)
    weights = 2 * (4 * 8 * 8 + 4 * 8 * 8)
    gates = 2 * 4 * 8
    unwanted = 4 * 8 * 8  # the data needs no gradient
    assert node_cost(only(graph, "lstm_backward")).flops == 3 * 5 * (4 * weights - 2 * unwanted + 20 * gates)


def test_checkpointing_runs_the_forward_again() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Linear(8, 5))
    part = nn.Sequential(*module[:3])

    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.first, x, use_reentrant=False))

    for precision in ("fp32", "amp"):
        graph = step(Wrapped(run, first=part, last=module[3]), precision=precision)
        plain = step(module, precision=precision)
        again = [(n.op, n.inputs[0].dtype, n.phase) for n in named(graph, "gelu")]
        dtype = "float32" if precision == "fp32" else "float16"
        assert again == [("gelu", dtype, "forward"), ("gelu", dtype, "backward")]
        assert ops(graph).count("linear") == ops(plain).count("linear") + 1


def test_accumulation_runs_several_passes_before_one_update() -> None:
    module = nn.Linear(8, 5)
    graph = step(module, optimizer="adamw", accumulation_steps=3)
    assert ops(graph).count("linear") == ops(graph).count("linear_backward") == 3
    assert ops(graph).count("optimizer_step") == 1
    sums = [n for n in named(graph, "add") if n.phase == "backward"]
    assert len(sums) == 2 * 2 and all(n.attributes.get("in_place") for n in sums)


def test_the_gradients_of_a_shared_weight_are_added() -> None:
    shared = nn.Linear(8, 8, bias=False)
    graph = step(nn.Sequential(shared, shared), loss=torch.sum, optimizer="sgd")
    assert ops(graph).count("linear_backward") == 2
    assert [n.op for n in graph.nodes if n.phase == "backward"].count("add") == 1
    assert node_cost(only(graph, "optimizer_step")).bytes == 12 * 64
    assert sum(t.kind == "gradient" for n in graph.nodes for t in n.outputs) == 1


def test_several_losses_are_trained_together() -> None:
    two = Wrapped(lambda self, x: (self.a(x), self.b(x)), a=nn.Linear(8, 3), b=nn.Linear(8, 2))
    graph = step(two, loss=lambda outputs: [out.square().mean() for out in outputs])
    assert ops(graph).count("linear_backward") == 2
    assert ops(step(two)).count("linear_backward") == 1  # by default the first output is trained


@pytest.mark.parametrize(
    ("module", "loss", "expected"),
    [
        (nn.Linear(8, 5), None, ["log_softmax", "nll_loss"]),
        (nn.Linear(8, 1), None, ["reduce_mean"]),
        (nn.Linear(8, 5), lambda out: out.pow(2).sum(), ["pow", "reduce_sum"]),
        (Wrapped(lambda self, x: {"loss": self.a(x).sum(), "y": x}, a=nn.Linear(8, 5)), None, []),
    ],
)
def test_the_loss(module: nn.Module, loss: object, expected: list[str]) -> None:
    assert phases(step(module, loss=loss)).get("loss", []) == expected


def test_training_mode_draws_masks_and_computes_statistics() -> None:
    graph = step(nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)).eval(), loss=torch.sum)
    assert only(graph, "batch_norm").attributes["training"] is True
    drawn = only(graph, "dropout")
    assert [(t.dtype, t.shape) for t in drawn.outputs] == [("float32", (4, 6)), ("bool", (4, 6))]
    assert [t.dtype for t in only(graph, "dropout_backward").inputs] == ["float32", "bool"]


def test_autocast_casts_forward_and_gives_gradients_back_in_fp32() -> None:
    graph = step(nn.Linear(8, 5), precision="amp", optimizer="sgd")
    back = only(graph, "linear_backward")
    assert {t.dtype for t in (*back.inputs, *back.outputs)} == {"float16"}
    gradients = [t for n in graph.nodes for t in n.outputs if t.kind == "gradient"]
    assert [t.dtype for t in gradients] == ["float32", "float32"]
    assert {t.dtype for t in only(graph, "optimizer_step").inputs} == {"float32"}


def test_a_step_rescales_like_a_new_trace() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    graph = step(module, torch.randn(2, 3, 8, 8), optimizer="adam")
    assert graph.rescale(7).content_hash == step(module, torch.randn(7, 3, 8, 8), optimizer="adam").content_hash


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adm"}, "optimizer must be one of sgd, momentum, adam, adamw"),
        ({"optimizer": torch.optim.LBFGS}, "the optimizer LBFGS cannot be captured"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters())}, "parameters that are not the module's"),
        ({"loss": lambda out: out}, "the loss must be a scalar tensor or several"),
        ({"loss": lambda out: out.detach().sum()}, "nothing to train"),
        ({"loss": lambda out: 1 / 0}, "in its loss: division by zero"),
        ({"accumulation_steps": 0}, "accumulation_steps must be a positive integer, not 0"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        step(nn.Linear(8, 5), **options)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="belong to mode='training'"):
        capture(nn.Linear(8, 5), X, optimizer="sgd")


class _TorchCount(TorchDispatchMode):
    """FLOPs by torch's own formulas: of every convolution, then of every matrix product, in the order they run."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions: list[float] = []
        self.products: list[float] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if func is torch.ops.aten.convolution_backward.default:
            *rest, groups, mask = args
            data = formula(*rest, groups, [mask[0], False, False], out_val=out)
            # torch's formula for the weight lets every channel meet every other, whatever the groups
            weight = formula(*rest, groups, [False, mask[1], False], out_val=out) / groups
            self.convolutions.append(data + weight)
        elif func is torch.ops.aten.convolution.default:
            self.convolutions.append(formula(*args, out_val=out))
        elif func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.products.append(formula(*args, out_val=out))
        return out


def _without_bias(node: Node) -> float:
    """FLOPs as torch counts them: products alone."""
    flops = node_cost(node).flops
    wanted = node.attributes.get("gradients")
    if wanted is None:
        return flops - (node.outputs[0].elements if len(node.inputs) > 2 else 0)
    assert isinstance(wanted, list)
    return flops - (node.inputs[0].elements if 2 in wanted else 0)


@pytest.mark.parametrize(
    "name",
    [
        "timm:resnet18",
        "timm:mobilenetv3_small_050",
        "timm:resnext50_32x4d",
        "timm:vit_tiny_patch16_224",
        "timm:convnext_atto",
        "hf:bert-base-uncased",
    ],
)
def test_flops_of_layers_both_ways_equal_torchs_counter(name: str) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    model = networks.build(name, batch_size=2, mode="training")
    graph = capture_owned(model.module, model.example_inputs, "training", "fp32", name)
    inputs = model.example_inputs
    with _TorchCount() as counted:
        output = model.module(**inputs) if isinstance(inputs, dict) else model.module(*inputs)
        default_loss(output, None).backward()
    layers = [n for n in graph.nodes if n.op.removesuffix("_backward") in ("conv", "linear")]
    assert {n.phase for n in layers} == {"forward", "backward"}
    assert [_without_bias(n) for n in layers if n.op.startswith("conv")] == counted.convolutions
    products = []
    for node in layers:
        if node.op == "linear":
            products.append(_without_bias(node))
        elif node.op == "linear_backward":
            wanted = [i for i in node.attributes["gradients"] if i < 2]  # type: ignore[union-attr, operator]
            products += [_without_bias(node) / len(wanted)] * len(wanted)
    assert products == counted.products
    assert not unknown_ops(graph)
