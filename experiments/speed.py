"""How quick the tool is on this machine: ``python -m experiments.speed``; see ``conf/speed.yaml``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import hydra
from omegaconf import DictConfig

import gnnperf
from data_collection.mains import one_line_errors


def speed(config: DictConfig) -> dict[str, float]:
    """Measure and print a cold prediction, a prediction for one more device, and the import.

    Returns:
        The numbers, named with their units.
    """
    numbers = {**_cold_prediction(list(config.cold)), **_one_more_device(config), **_imports(config.repeats)}
    for name, value in numbers.items():
        print(f"{name:42s} {value:8.2f}")
    return numbers


def _cold_prediction(arguments: list[str]) -> dict[str, float]:
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "gnnperf", "predict", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise ValueError(f"gnnperf predict {' '.join(arguments)} failed")
    return {"cold prediction, s": time.perf_counter() - start, "cold prediction, peak GB": usage.ru_maxrss * 1024 / 1e9}


def _one_more_device(config: DictConfig) -> dict[str, float]:
    graph = gnnperf.zoo(config.network, batch_size=config.batch_size)
    gnnperf.predict(graph, device=config.devices[0])
    times_ms = []
    for device in config.devices[1:]:
        start = time.perf_counter()
        assert gnnperf.predict(graph, device=device).total_ms > 0
        times_ms.append(1e3 * (time.perf_counter() - start))
    return {"one more device, median ms": statistics.median(times_ms), "one more device, slowest ms": max(times_ms)}


def _imports(repeats: int) -> dict[str, float]:
    """Alternately, so that both see the same state of the machine."""
    seconds: dict[str, list[float]] = {"import torch, torch_geometric": [], "import gnnperf": []}
    for statement in [*seconds] * repeats:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        seconds[statement].append(time.perf_counter() - start)
    medians = {f"{statement}, s": statistics.median(values) for statement, values in seconds.items()}
    base, ours = medians.values()
    return {**medians, "ratio of the imports": ours / base}


@hydra.main(version_base="1.3", config_path="../conf", config_name="speed")
@one_line_errors
def main(config: DictConfig) -> None:
    """Measure as configured."""
    speed(config)


if __name__ == "__main__":
    main()
