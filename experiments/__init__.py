"""Hydra mains that train and judge the model, and the tables that they print."""

import warnings

with warnings.catch_warnings():  # torch_geometric raises some while it is imported, which are not the user's
    warnings.simplefilter("ignore")
    import torch_geometric  # noqa: F401
