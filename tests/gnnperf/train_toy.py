"""Trains on a pickled data set, as a process of its own or started by torchrun: the arguments are one JSON object.

``kill`` names what the process is to die of, as by ``kill -9``: ``{"step": n}`` in the middle of an epoch,
``{"write": n}`` while the n-th checkpoint is half written.
"""

import io
import json
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import torch  # noqa: E402
import torch_geometric  # noqa: E402, F401

from gnnperf.distributed import start_ranks  # noqa: E402
from gnnperf.splits import Split  # noqa: E402
from gnnperf.trainer import Trainer  # noqa: E402
from gnnperf.training import TrainingConfig, model_config  # noqa: E402

torch.set_num_threads(1)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_step(trainer: Trainer, number: int) -> None:
    trainer.optimizer.register_step_post_hook(lambda *_: die() if trainer.scheduler.last_epoch + 1 == number else None)


def die_at_write(number: int) -> None:
    save, written = torch.save, []

    def half(state, file):
        written.append(state)
        if len(written) < number:
            return save(state, file)
        whole = io.BytesIO()
        save(state, whole)
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        die()

    torch.save = half


def main() -> None:
    asked = json.loads(sys.argv[1])
    dataset = pickle.loads(Path(asked["dataset"]).read_bytes())
    split = Split(tuple(asked["train"]), tuple(asked["validation"]), ())
    ranks = start_ranks()
    checkpoint = Path(asked["checkpoint"]) if "checkpoint" in asked else None
    trainer = Trainer(
        dataset, split, model_config(**asked["model"]), TrainingConfig(**asked["training"]), checkpoint, ranks
    )
    kill = asked.get("kill", {})
    if "step" in kill:
        die_at_step(trainer, kill["step"])
    if "write" in kill:
        die_at_write(kill["write"])
    trainer.run(lambda numbers: print(f"epoch {numbers['epoch']}", flush=True))
    if "result" in asked:
        state = {"weights": trainer.result.state_dict(), "history": trainer.history}
        torch.save(state, f"{asked['result']}.{ranks.rank}")


if __name__ == "__main__":
    main()
