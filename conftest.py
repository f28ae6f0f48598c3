"""Lies here so that pytest finds ``data_collection`` and ``experiments``, which are not installed."""

import os
import warnings
from pathlib import Path

import pytest
import torch

with warnings.catch_warnings():  # torch_geometric raises warnings while it is imported
    warnings.simplefilter("ignore")
    import torch_geometric  # noqa: F401

torch.set_num_threads(1)  # the work is small, and tests run beside each other


@pytest.fixture
def shared_folder() -> Path:
    """The folder with the public measurements (``data/``) and the splits (``benchmarks/``)."""
    folder = os.environ.get("GNNPERF_SHARED")
    if not folder:
        pytest.skip("set GNNPERF_SHARED to the folder that holds data/ and benchmarks/")
    return Path(folder)
