"""How long captures take: ``python -m experiments.capture_times data.clones.timm=FOLDER``."""

from __future__ import annotations

import time
from pathlib import Path

import hydra
import numpy as np
import pandas as pd
from omegaconf import DictConfig
from rich.progress import track

from data_collection.mains import one_line_errors
from experiments.data import load_records
from experiments.tables import show
from gnnperf import networks
from gnnperf.capture import capture_owned
from gnnperf.cost import unknown_ops

QUANTILES = {"median": 0.5, "90 %": 0.9, "99 %": 0.99, "slowest": 1.0}


def capture_times(config: DictConfig) -> pd.DataFrame:
    """Build and capture every network of the results at each image size, one after the other, and print the times.

    Returns:
        A row for every network: seconds to build and to capture, nodes, ops without a cost rule, and the error if any.
    """
    records = load_records(config.data).records
    wanted = sorted({(record.network, record.image_size) for record in records})
    rows = [_timed(name, image_size, config) for name, image_size in track(wanted, "capturing")]
    table = pd.DataFrame(rows)
    good = table[table.error == ""]
    columns = {f"{part}_s": good[f"{part}_s"] for part in ("build", "capture")}
    columns["both_s"] = good.build_s + good.capture_s
    show(
        "seconds a network",
        pd.DataFrame({q: {k: np.quantile(c, v) for k, c in columns.items()} for q, v in QUANTILES.items()}),
        decimals=2,
    )
    print(
        f"\n{len(good)} of {len(table)} networks captured; {int((good.unknown_ops > 0).sum())} with ops of unknown cost"
    )
    for row in table[table.error != ""].itertuples():
        print(f"failed: {row.network} at {row.image_size}: {row.error}")
    Path(config.folder).mkdir(parents=True, exist_ok=True)
    table.to_csv(Path(config.folder) / "capture_times.csv", index=False)
    return table


def _timed(name: str, image_size: int, config: DictConfig) -> dict[str, object]:
    facts: dict[str, object] = {"network": name, "image_size": image_size, "error": ""}
    start = time.perf_counter()
    try:
        model = networks.build(name, config.batch_size, image_size, mode=config.mode)
        built = time.perf_counter()
        inputs = model.example_inputs
        graph = capture_owned(model.module, inputs, config.mode, config.precision, name, config.optimizer)
    except Exception as error:  # whatever one network does, the others are still to be captured
        return {**facts, "error": f"{type(error).__name__}: {error}"}
    seconds = {"build_s": built - start, "capture_s": time.perf_counter() - built}
    return {**facts, **seconds, "nodes": len(graph.nodes), "unknown_ops": sum(unknown_ops(graph).values())}


@hydra.main(version_base="1.3", config_path="../conf", config_name="capture_times")
@one_line_errors
def main(config: DictConfig) -> None:
    """Time as configured."""
    capture_times(config)


if __name__ == "__main__":
    main()
