"""``nasbench201:CELL`` networks: cells of NAS-Bench-201 in its CIFAR-10 skeleton.

Source: Dong and Yang, "NAS-Bench-201: Extending the Scope of Reproducible Neural Architecture Search", ICLR 2020. A
cell is written as in its tables: ``|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|``
gives, for each of three nodes, the op on the edge from every earlier node.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import nn

from gnnperf.networks.base import Request, ZooModel, images, on_meta

CELLS_IN_A_STAGE = 5
WIDTHS = (16, 32, 64)
CLASSES = 10
IMAGE_SIZE = 32


def build(request: Request) -> ZooModel:
    """Build the network of a cell and a batch of images (batch_size, 3, 32, 32) on ``meta``.

    Raises:
        ValueError: If the cell is not written as in the tables.
    """
    request.sizes()
    cell = _parse(request)
    size = request.image_size or IMAGE_SIZE
    module = on_meta(lambda: Network(cell))
    return ZooModel(request.source, module, (images(request.batch_size, 3, size, size),))


def _parse(request: Request) -> list[list[str]]:
    """For every node after the first, the ops on its edges from the earlier ones."""
    nodes = []
    for number, text in enumerate(request.name.split("+"), start=1):
        edges = re.findall(r"\|(\w+)~(\d)(?=\|)", text)
        ops = [op for op, _ in edges]
        wrong = [op for op in ops if op not in _OPS]
        if wrong:
            raise ValueError(f"{request.source}: unknown op {wrong[0]!r}; there are {', '.join(_OPS)}")
        if [int(source) for _, source in edges] != list(range(number)) or text.count("|") != number + 1:
            raise ValueError(
                f"{request.source}: {text!r} does not give node {number} an op from each earlier node; a cell is such "
                "as '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_1x1~2|'"
            )
        nodes.append(ops)
    if len(nodes) != 3:
        raise ValueError(f"{request.source}: a cell has 3 nodes after its input, separated by '+', not {len(nodes)}")
    return nodes


class _Zero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As in the benchmark, an edge that is not there still costs a multiplication."""
        return x.mul(0.0)


def _relu_conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, nn.BatchNorm2d(outputs))


_OPS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: _Zero(),
    "skip_connect": lambda width: nn.Identity(),
    "nor_conv_1x1": lambda width: _relu_conv_bn(width, width, 1),
    "nor_conv_3x3": lambda width: _relu_conv_bn(width, width, 3),
    "avg_pool_3x3": lambda width: nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
}


class Cell(nn.Module):
    """Every node is the sum of an op on each earlier node; the last one is the result."""

    def __init__(self, cell: list[list[str]], width: int) -> None:
        super().__init__()
        self.nodes = nn.ModuleList(nn.ModuleList(_OPS[op](width) for op in ops) for ops in cell)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width, height, width of the image) to the same."""
        values = [x]
        for edges in self.nodes:
            assert isinstance(edges, nn.ModuleList)
            total, *others = [edge(value) for edge, value in zip(edges, values, strict=True)]
            for other in others:
                total = total + other
            values.append(total)
        return values[-1]


class Reduction(nn.Module):
    """The basic block of a residual network that halves the image and doubles the width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = _relu_conv_bn(inputs, outputs, 3, stride=2), _relu_conv_bn(outputs, outputs, 3)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h / 2, w / 2)."""
        return self.shortcut(x) + self.second(self.first(x))


class Network(nn.Module):
    """Three stages of five cells between a stem and a classifier."""

    def __init__(self, cell: list[list[str]]) -> None:
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]))
        layers: list[nn.Module] = [stem]
        for stage, width in enumerate(WIDTHS):
            if stage:
                layers.append(Reduction(WIDTHS[stage - 1], width))
            layers += [Cell(cell, width) for _ in range(CELLS_IN_A_STAGE)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.BatchNorm2d(WIDTHS[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (batch, 3, 32, 32) to scores (batch, 10)."""
        return self.classifier(self.head(self.layers(x)))
