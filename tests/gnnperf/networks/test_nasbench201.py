import pytest
import torch

import gnnperf
from gnnperf import networks
from gnnperf.cost import node_cost

ALL_CONV = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
MIXED = "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|"


def test_the_largest_cell_has_the_published_size() -> None:
    # The benchmark gives 1.531546 M parameters and 220.12 M multiply-adds.
    graph = gnnperf.zoo(f"nasbench201:{ALL_CONV}")
    assert graph.parameter_count == 1_531_546
    products = sum(node_cost(node).flops for node in graph.nodes if node.op in ("conv", "linear")) / 2
    assert products / 1e6 == pytest.approx(220.12, rel=0.002)


def test_every_op_runs_forward_and_in_training() -> None:
    model = networks.build(f"nasbench201:{MIXED}", batch_size=3)
    assert model.module(*model.example_inputs).shape == (3, 10)
    graph = gnnperf.zoo(f"nasbench201:{MIXED}", batch_size=4, mode="training", optimizer="sgd")
    assert {n.op for n in graph.nodes} >= {"conv_backward", "avg_pool_backward", "optimizer_step", "mul"}
    assert graph.rescale_error == ""


def test_the_cell_computes_what_its_string_says() -> None:
    module = networks.build(f"nasbench201:{MIXED}").module
    cell = module.layers[1].to_empty(device="cpu").eval()
    for part in cell.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    x = torch.randn(2, 16, 8, 8)
    conv1, conv3, pool = cell.nodes[0][0], cell.nodes[2][2], cell.nodes[2][0]
    first = conv1(x)
    second = 0 * x + first
    torch.testing.assert_close(cell(x), pool(x) + 0 * first + conv3(second))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("|nor_conv_5x5~0|+|none~0|none~1|+|none~0|none~1|none~2|", "unknown op 'nor_conv_5x5'; there are none,"),
        ("|none~0|+|none~0|none~1|", "a cell has 3 nodes after its input, separated by '[+]', not 2"),
        ("|none~0|+|none~1|none~0|+|none~0|none~1|none~2|", "does not give node 2 an op from each earlier node"),
        ("resnet", "does not give node 1 an op from each earlier node"),
    ],
)
def test_a_cell_that_is_written_wrong_says_how(cell: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        networks.build(f"nasbench201:{cell}")
