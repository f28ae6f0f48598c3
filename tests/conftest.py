"""A small data set whose times follow a rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from gnnperf.records import Record

DEVICES = ("rtx-3090", "rtx-4090", "i9-10940x")
RECORD = Record(
    source="made up",
    source_file="results/benchmark-one.csv",
    source_line=2,
    network="made-up",
    family="family",
    device="rtx-4090",
    framework="torch",
    version="2.4",
    compiled=False,
    memory_format="channels_first",
    mode="inference",
    precision="fp32",
    batch_size=4,
    image_size=16,
    time_ms=1.0,
    label="forward",
)


@pytest.fixture
def record() -> Record:
    return RECORD


class ConvNetwork(torch.nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers = [torch.nn.Conv2d(3, width, 3, padding=1)]
        for _ in range(depth):
            layers += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Perceptron(torch.nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = [torch.nn.Linear(48, width)]
        for _ in range(depth):
            layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture(scope="session")
def joint_dataset(toy_dataset):
    """The 54 measurements and after them 33 of 11 layers: five linear ones on three devices in one file, six ReLUs."""
    from gnnperf.capture import capture
    from gnnperf.dataset import Dataset, Sample
    from gnnperf.features import graph_data

    dataset = Dataset([*toy_dataset.graphs], [*toy_dataset.samples])
    for number in range(11):
        width = 64 * (number + 1)
        layer, family = (torch.nn.Linear(width, width), "linear") if number < 5 else (torch.nn.ReLU(), "relu")
        graph = capture(layer, torch.zeros(128, width))
        dataset.graphs.append(graph_data(graph))
        for device in DEVICES:
            file = "linear.csv" if family == "linear" else f"relu-{device}.csv"
            row = replace(
                RECORD,
                source_file=file,
                network=f"layer:{family},features={width}",
                family=family,
                device=device,
                batch_size=128,
                time_ms=1e-3 * width,
            )
            dataset.samples.append(Sample(row, len(dataset.graphs) - 1, graph.content_hash))
    return dataset


@pytest.fixture(scope="session")
def toy_dataset():
    """54 measurements of 18 graphs: a CPU and two GPUs, a file each, thrice or twice their roofline with launches."""
    from gnnperf.capture import capture
    from gnnperf.cost.roofline import graph_roofline_ms
    from gnnperf.dataset import Dataset, Sample
    from gnnperf.features import graph_data
    from gnnperf.hardware import load_device

    dataset = Dataset()
    networks: dict[str, Callable[[int, int], torch.nn.Module]] = {"conv": ConvNetwork, "perceptron": Perceptron}
    sizes = [(width, depth) for width in (64, 192, 384) for depth in (1, 2, 4)]
    for family, build in networks.items():
        for width, depth in sizes:
            example = torch.zeros(4, 3, 64, 64) if family == "conv" else torch.zeros(1024, 48)
            graph = capture(build(width, depth).eval(), example)
            dataset.graphs.append(graph_data(graph))
            for device in DEVICES:
                row = replace(
                    RECORD,
                    source_file=f"results/benchmark-{device}.csv",
                    network=f"{family}_{width}_{depth}",
                    family=family,
                    device=device,
                    batch_size=graph.batch_size,
                )
                factor = 2 if device == "i9-10940x" else 3
                time_ms = factor * graph_roofline_ms(graph, load_device(device), row.software)
                sample = Sample(replace(row, time_ms=time_ms), len(dataset.graphs) - 1, graph.content_hash)
                dataset.samples.append(sample)
    return dataset
