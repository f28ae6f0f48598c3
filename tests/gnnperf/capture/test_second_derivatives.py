"""Gradients of gradients: as torch computes them, or refused."""

import pytest
import torch
import torch.nn.functional as F
from graph_queries import Wrapped, ops
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gnnperf.capture import capture
from gnnperf.cost import node_cost, unknown_ops


def penalized(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The squared norm of all gradients, as in a gradient penalty."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        wanted = [x, *self.net.parameters()]
        gradients = torch.autograd.grad(self.net(x).square().sum(), wanted, create_graph=True)
    return sum(gradient.square().sum() for gradient in gradients)


class Products(TorchDispatchMode):
    """FLOPs of matrix products by torch's own formulas."""

    flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func.overloadpacket):
            self.flops += formula(*args, out_val=out)
        return out


def itself(loss: torch.Tensor) -> torch.Tensor:
    return loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 8), (4, 3, 8)])
def test_products_of_a_gradient_penalty_are_those_of_a_real_run(bias: bool, shape: tuple[int, ...]) -> None:
    net = nn.Sequential(nn.Linear(8, 16, bias), nn.Tanh(), nn.Linear(16, 5, bias))
    module, x = Wrapped(penalized, net=net), torch.randn(shape)
    graph = capture(module, x, mode="training", loss=itself)
    with Products() as counted:
        module(x).backward()
    products = 0.0
    for node in graph.nodes:
        if node.op in ("linear", "matmul"):
            products += node_cost(node).flops - (node.outputs[0].elements if len(node.inputs) > 2 else 0)
        if node.op == "linear_backward":
            wanted = node.attributes["gradients"]
            products += node_cost(node).flops - (node.inputs[0].elements if 2 in wanted else 0)
    assert products == counted.flops
    assert not unknown_ops(graph).keys() - {"tanh_backward"}


@pytest.mark.parametrize("layer", [nn.RMSNorm(8), nn.RMSNorm(8, elementwise_affine=False), nn.Dropout(0.5)])
def test_norms_and_dropout_are_differentiated_twice(layer: nn.Module) -> None:
    module = Wrapped(penalized, net=nn.Sequential(nn.Linear(8, 8), layer))
    plain = Wrapped(lambda self, x: self.net(x).square().sum(), net=nn.Sequential(nn.Linear(8, 8), layer))
    twice, once = (capture(m, torch.randn(4, 8), mode="training", loss=itself) for m in (module, plain))
    assert len(twice.nodes) > 2 * len(once.nodes) and not unknown_ops(twice)


def test_gradients_in_plain_ops_are_those_of_torch() -> None:
    from gnnperf.capture.composites import _BUILDERS

    x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    composite = _BUILDERS["rms_norm"](x, [8], weight)
    gradient = torch.randn(3, 8)
    assert composite is not None and composite.differentiable is not None
    made = composite.differentiable([0, 1], [gradient], [x, weight])
    real = torch.autograd.grad(F.rms_norm(x, [8], weight), (x, weight), gradient)
    torch.testing.assert_close(made, list(real))
    matrix, bias = torch.randn(5, 8, requires_grad=True), torch.randn(5, requires_grad=True)
    rows = x.unflatten(0, (3, 1))
    composite, gradient = _BUILDERS["linear"](rows, matrix, bias), torch.randn(3, 1, 5)
    assert composite is not None and composite.differentiable is not None
    made = composite.differentiable([0, 1, 2], [gradient], composite.reads_back([0, 1, 2]))
    real = torch.autograd.grad(F.linear(rows, matrix, bias), (rows, matrix, bias), gradient)
    torch.testing.assert_close(made, list(real))


def attention(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    heads = self.mix(x).unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize(
    ("op", "net"),
    [
        ("attention", Wrapped(attention, mix=nn.Linear(8, 8))),
        ("lstm", Wrapped(lambda self, x: self.lstm(x)[0], lstm=nn.LSTM(8, 8))),
    ],
)
def test_what_is_not_captured_is_refused(op: str, net: nn.Module) -> None:
    module = Wrapped(penalized, net=net)
    with pytest.raises(ValueError, match=f"second derivatives of {op} are not captured") as raised:
        capture(module, torch.randn(2, 3, 8), mode="training", loss=itself)
    assert "\n" not in str(raised.value)
    inference = capture(module, torch.randn(2, 3, 8))  # a gradient that nobody differentiates is fine
    assert f"{op}_backward" in ops(inference)
