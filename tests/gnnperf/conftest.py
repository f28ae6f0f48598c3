"""What several tests need: a small network, and weights that nobody trained."""

from pathlib import Path

import pytest
import torch

FACTS = {
    "training_devices": ["rtx-4090", "a100-sxm4-40gb"],
    "interval_log_ratio": [-0.2, 0.3],
    "zero_shot_interval_log_ratio": [-0.7, 0.8],
    "training_split": "0123",
}


class SmallNetwork(torch.nn.Module):
    """A residual block of images and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(3)))
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


@pytest.fixture
def facts():
    return dict(FACTS)


@pytest.fixture
def small_network():
    return SmallNetwork()


@pytest.fixture(scope="session")
def small_graph():
    from gnnperf.capture import capture

    return capture(SmallNetwork(), torch.zeros(2, 3, 16, 16), name="small")


@pytest.fixture(scope="session")
def model():
    from gnnperf.model import Ensemble, PerformanceModel
    from gnnperf.training import model_config

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Ensemble([PerformanceModel(model_config(width=16, embedding=4)) for _ in range(2)])
        for parameter in model.parameters():  # the head, too, so that times are more than rooflines
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(scope="session")
def weights_folder(model, tmp_path_factory) -> Path:
    from gnnperf.weights import save_weights

    folder = tmp_path_factory.mktemp("weights")
    save_weights(folder, model, FACTS)
    return folder


@pytest.fixture(scope="session")
def predictions(small_graph, weights_folder):
    from gnnperf.prediction import predict

    return predict(small_graph, ["rtx-4090", "t4"], weights=weights_folder)
