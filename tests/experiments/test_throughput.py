import pytest

from experiments.throughput import prediction_speed, speed_line, training_speed


def test_training_speed_is_that_of_all_epochs_together():
    history = [
        {"train/seconds": 1.0, "train/graphs_per_s": 100.0, "train/pairs_per_s": 1000.0},
        {"train/seconds": 3.0, "train/graphs_per_s": 20.0, "train/pairs_per_s": 200.0},
        {"epoch": 3},
    ]
    speed = training_speed(history)
    assert speed == {"train/seconds": 4.0, "train/graphs_per_s": 40.0, "train/pairs_per_s": 400.0}
    assert speed_line("train", speed) == "train: 40 graphs/s, 400 node-device pairs/s"
    assert training_speed([])["train/graphs_per_s"] == 0


def test_prediction_speed_counts_graphs_once_and_a_pair_for_every_row(toy_dataset):
    nodes = [int(toy_dataset.graphs[graph].num_nodes) for graph in (0, 1)]
    speed = prediction_speed(toy_dataset, [0, 1, 3], seconds=0.5)  # three rows a graph
    assert speed["predict/graphs_per_s"] == 4
    assert speed["predict/pairs_per_s"] == pytest.approx((2 * nodes[0] + nodes[1]) / 0.5)
