"""How tensors lie in memory, and the copies that libraries make of those that lie as they cannot read."""

import pytest
import torch
from torch import nn

import gnnperf
from gnnperf.capture.layouts import copies_input, layout
from gnnperf.cost.registry import node_cost

IMAGES = torch.empty(2, 8, 6, 5, device="meta")
TOKENS = torch.empty(2, 30, 8, device="meta")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (IMAGES, "row_major"),
        (IMAGES[:, :4], "row_major"),
        (IMAGES.expand(2, 8, 6, 5), "row_major"),
        (IMAGES.to(memory_format=torch.channels_last), "channels_last"),
        (torch.empty(2, 6, 5, 8, device="meta").permute(0, 3, 1, 2), "channels_last"),
        (TOKENS.view(2, 30, 2, 4).transpose(1, 2), "permuted"),
        (TOKENS.transpose(1, 2), "transposed"),
        (IMAGES.flatten(2).transpose(1, 2), "transposed"),
        (torch.empty(2, 30, 1, device="meta").transpose(0, 1), "permuted"),
        (torch.empty((), device="meta"), "row_major"),
        (torch.empty(0, 3, device="meta"), "row_major"),
    ],
)
def test_the_innermost_dimension_names_the_layout(tensor: torch.Tensor, expected: str) -> None:
    assert layout(tensor) == expected


@pytest.mark.parametrize(
    ("op", "tensor", "copied"),
    [
        ("conv", IMAGES, False),
        ("conv", IMAGES.to(memory_format=torch.channels_last), False),
        ("conv", IMAGES[:, :4], True),
        ("conv_transpose", IMAGES[..., 1:], True),
        ("linear", TOKENS, False),
        ("linear", TOKENS[:, 1:], True),
        ("linear", TOKENS[..., :4], False),  # rows with gaps between them are a matrix still
        ("linear", TOKENS.transpose(1, 2), True),
        ("linear", TOKENS[0].T, False),  # a transposed matrix is read as it is
        ("linear", TOKENS[0, 0], False),
        ("relu", IMAGES[:, :4], False),
    ],
)
def test_operands_in_pieces_are_copied(op: str, tensor: torch.Tensor, copied: bool) -> None:
    assert copies_input(op, tensor) == copied


def test_a_copied_operand_is_read_and_written_once_more() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x[:, :4])

    (node,) = gnnperf.capture(Half(), torch.empty(2, 8, 6, 5)).nodes
    cost = node_cost(node)
    half, weight = 2 * 4 * 6 * 5 * 4, 4 * 4 * 4
    assert (cost.bytes_read, cost.bytes_written, cost.kernels) == (2 * half + weight, 2 * half, 2)


def test_tokens_of_an_image_are_transposed_in_the_graph() -> None:
    class Tokens(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu().flatten(2).transpose(1, 2).exp()

    relu, exp = gnnperf.capture(Tokens(), torch.empty(2, 8, 6, 5)).nodes
    assert (relu.outputs[0].layout, exp.inputs[0].layout) == ("row_major", "transposed")
