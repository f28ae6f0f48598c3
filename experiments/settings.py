"""What a configuration says of model and training, as the library's own values."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from gnnperf.model import ModelConfig
from gnnperf.training import TrainingConfig, model_config

# The groups that make a model what it is.
_GROUPS = ["data", "split", "model", "device_encoding", "optimizer", "trainer"]
# Of the group ``trainer``, what is not about a single model but how they are made.
_OF_THE_RUN = ("members", "matmul_precision", "accelerator")


def model_sizes(config: DictConfig) -> ModelConfig:
    """Of the groups ``model`` and ``device_encoding``.

    Raises:
        ValueError: As ``gnnperf.training.model_config``.
    """
    return model_config(**config.model, **config.device_encoding)


def training_config(config: DictConfig, member: int = 0) -> TrainingConfig:
    """Of the groups ``trainer`` and ``optimizer``, for the model of that number, which has a seed of its own."""
    trainer = {name: value for name, value in config.trainer.items() if name not in _OF_THE_RUN}
    optimizer = {**config.optimizer}
    trainer |= {"seed": config.trainer.seed + member, "optimizer": optimizer.pop("name")}
    return TrainingConfig(**trainer, **optimizer)


def published(config: DictConfig) -> dict[str, Any]:
    """What may stand with the weights: the groups that made them, without folders of the machine that trained them."""
    groups = OmegaConf.to_container(OmegaConf.masked_copy(config, _GROUPS), resolve=True)
    assert isinstance(groups, dict)
    chosen = {name: groups["data"][name] for name in ("networks", "mode", "limit_per_file", "seed")}
    sources = [name for name, folder in groups["data"]["clones"].items() if folder is not None]
    return {**groups, "data": {"sources": sources, **chosen}}
