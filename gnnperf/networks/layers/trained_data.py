"""A step of a benchmark that trains the data of a layer together with its weights."""

from __future__ import annotations

import torch
from torch import nn


class TrainedData(nn.Module):
    """A layer whose input and target are parameters, compared by their mean squared difference."""

    def __init__(self, layer: nn.Module, data: torch.Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.data = nn.Parameter(data)
        with torch.no_grad():
            self.target = nn.Parameter(torch.empty_like(layer(data)))

    def forward(self, samples: torch.Tensor) -> dict[str, torch.Tensor]:
        """Output and loss; ``samples``, (batch, 0), only says the batch size that the parameters are for.

        Raises:
            ValueError: If it is another.
        """
        if len(samples) != len(self.data):
            raise ValueError(f"its data are parameters for batch {len(self.data)}")
        output = self.layer(self.data)
        return {"output": output, "loss": (output - self.target).square().mean()}
