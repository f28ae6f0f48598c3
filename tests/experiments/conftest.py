"""A folder of made-up results in the form of timm's, of networks that are captured in no time."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from gnnperf.hardware import load_device

pytest.importorskip("timm")
ROOT = Path(__file__).parents[2]
HEADER = "model,{0}_img_size,{0}_samples_per_sec,{0}_step_time,{0}_batch_size,param_count"
FILES = {
    "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv": ("rtx-4090", 256),
    "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv": ("i9-10940x", 8),
    "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv": ("rtx-3090", 64),
}
# Name -> family, image size, millions of parameters, 1e9 FLOPs of a sample.
NETWORKS = {
    "test_vit": ("vision_transformer", 160, 0.37, 0.08),
    "test_vit2": ("vision_transformer", 160, 0.46, 0.09),
    "test_mambaout": ("mambaout", 160, 0.45, 0.09),
    "test_byobnet": ("byobnet", 160, 0.46, 0.06),
    "test_convnext": ("convnext", 160, 0.27, 0.06),
    "test_resnet": ("resnet", 160, 0.47, 0.19),
    "test_efficientnet": ("efficientnet", 160, 0.36, 0.12),
    "test_nfnet": ("nfnet", 160, 0.38, 0.3),
}


@pytest.fixture(scope="session")
def measurements(tmp_path_factory) -> dict[str, str]:
    """Overrides of the group ``data``."""
    folder = tmp_path_factory.mktemp("timm")
    (folder / "clone" / "results").mkdir(parents=True)
    for file, (device, batch_size) in FILES.items():
        rate_scale = load_device(device).peak_flops_per_s("fp16", True) / 20
        rows = [
            f"{name},{size},{rate_scale / (1e9 * gflops):.2f},1.0,{batch_size},{millions}"
            for name, (_, size, millions, gflops) in NETWORKS.items()
        ]
        rows += ["lost_net,224,10,1,8,1.0", "test_vit,160,nan,nan,8,0.37"]
        rows += ["test_resnet,160,999,1,8,77.0"]  # another network: its parameters do not agree
        (folder / "clone" / "results" / file).write_text("\n".join([HEADER.format(file.split("-")[1]), *rows]) + "\n")
    names = {name: [family, name] for name, (family, *_) in NETWORKS.items()} | {"lost_net": ["resnet", None]}
    (folder / "names.json").write_text(json.dumps(names))
    return {
        "data.clones.timm": str(folder / "clone"),
        "data.names": str(folder / "names.json"),
        "data.cache": str(folder / "cache"),
        "data.workers": "1",
    }


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> str:
    """A folder in the form of NeuSight's: two ops on two GPUs, 24 rows of ``train`` and 8 of ``test``."""
    folder = tmp_path_factory.mktemp("neusight")
    for device, scale in {"Tesla P4": 1.0, "NVIDIA L4": 0.6}.items():
        for op in ("relu", "softmax"):
            for part, width, batches in (("train", 1024, range(512, 3584, 512)), ("test", 2048, (512, 1024))):
                lines = [f"{op},{scale * batch * width * 1e-6},{device},p2.1.0,{batch},{width}" for batch in batches]
                path = folder / f"scripts/asplos/data/dataset/{part}/collect/{op}/p2.1.0/{device}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(["OPName,Latency,Device,Torch Version,B,H", *lines]) + "\n")
    return str(folder)


@pytest.fixture
def configure(measurements, tmp_path):
    """Compose a configuration as a main would, for a run in ``tmp_path`` that takes a second."""

    def configure(name: str, *overrides: str, **more: str) -> DictConfig:
        values = {**measurements, "folder": str(tmp_path / name), "logger": "none", **more}
        if name == "train":
            values = {"trainer.members": "2", "model.width": "16", "trainer.epochs": "2", **values}
        arguments = [f"{key}={value}" for key, value in values.items()]
        with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
            return compose(name, [*arguments, *overrides])

    return configure
