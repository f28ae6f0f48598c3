"""Hydra mains that train and judge the model, and the tables that they print."""
