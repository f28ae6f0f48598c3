"""Import the timed transformers that come with sitar-lab/NeuSight.

Each file ``scripts/asplos/label/DEVICE/NETWORK-{inf,train}-SEQ-BATCH[-OPTION].json`` holds one run: Lee, Phanishayee
and Mahajan, "Forecasting GPU Performance for Deep Learning Training and Inference", ASPLOS 2025. Licensed under MIT by
Georgia Tech and Microsoft. Inference is a forward pass; training is forward and backward without an optimizer.

What is known, from the node tables (``.csv``) beside the files and from ``data/DLmodel_configs``. All is fp32 with
TF32 off: no run on an A100 is faster than its plain fp32 rate allows. BERT ran as ``BertForSequenceClassification`` in
inference and as ``BertForPreTraining`` in training, whatever its config says; GPT-2, GPT-3 (a GPT-2 of its sizes) and
OPT ran with their language-model heads on all tokens. Attention is in its parts. The tables show transformers of 4.36
or later (a second ``masked_fill`` in OPT's causal mask) and torch 2.0 or 2.1 (``nn_module_stack`` came with 2.0, and
holds plain classes up to 2.1).

What is assumed: ``fusion`` is ``torch.compile``, which left attention in its parts. The tables end at the logits and
show no loss: cross-entropy is taken (for BERT's two heads, both), as transformers forms it from labels. It is a few
passes over the logits, less than a hundredth of a step.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from data_collection.imports import Import
from data_collection.neusight_nodes import node_times_ms
from gnnperf.records import Record

SOURCE = "sitar-lab+NeuSight"
DEVICES = {
    "AMD_Instinct_MI100": "mi100",
    "AMD_Instinct_MI210": "mi210",
    "AMD_Instinct_MI250": "mi250",
    "NVIDIA_A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA_A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA_A100_80GB_PCIe": "a100-pcie-80gb",
    "NVIDIA_H100_80GB_HBM3": "h100-sxm5-80gb",
    "NVIDIA_L4": "l4",
    "Tesla_P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla_P4": "p4",
    "Tesla_T4": "t4",
    "Tesla_V100-PCIE-32GB": "v100-pcie-32gb",
}
VERSION = "2.1"
# Of every network, its family and its zoo name in each mode.
NETWORKS = {
    "bert_large": (
        "bert",
        {"inf": "bert-large-uncased-for-sequence-classification", "train": "bert-large-uncased-for-pretraining"},
    ),
    "gpt2_large": ("gpt2", {"inf": "gpt2-large", "train": "gpt2-large"}),
    "gpt3_xl": ("gpt2", {"inf": "gpt3-xl-3072", "train": "gpt3-xl-3072"}),
    "gpt3_27": ("gpt2", {"inf": "gpt3-2.7b", "train": "gpt3-2.7b"}),
    "opt_13": ("opt", {"inf": "opt-1.3b", "train": "opt-1.3b"}),
}
_FILE_NAME = re.compile(
    r"(?P<network>\w+)-(?P<mode>inf|train)-(?P<seq>\d+)-(?P<batch>\d+)(-((?P<fused>fusion)|(?P<gpus>[dtp]p\d+(_\d+)?)))?"
)


def import_neusight(clone: str | Path) -> Import:
    """Read the runs of whole networks on one GPU.

    Args:
        clone: Folder of a clone of NeuSight, or any folder with its ``scripts/asplos/label``.

    Raises:
        ValueError: If there are no such files, or one is damaged.
    """
    files = sorted((Path(clone) / "scripts" / "asplos" / "label").glob("*/*.json"))
    if not files:
        raise ValueError(
            f"no scripts/asplos/label/*/*.json in {str(clone)!r}: give the folder of a clone of "
            "https://github.com/sitar-lab/NeuSight"
        )
    result = Import()
    for path in files:
        imported = _import_file(path)
        if isinstance(imported, str):
            result.skipped[imported] += 1
        else:
            result.records.append(imported)
    return result


def _import_file(path: Path) -> Record | str:
    """The record of a file, or why there is none."""
    device = DEVICES.get(path.parent.name)
    parsed = _FILE_NAME.fullmatch(path.stem)
    if parsed is None or device is None:
        return "file name not understood or device not known"
    if parsed["gpus"]:
        return "several GPUs"
    if parsed["network"].startswith("switch"):
        return "mixture of experts: where its tokens went, and how many were dropped, is not known"
    if parsed["network"] not in NETWORKS:
        return "network not known"
    time_ms = _end_to_end_ms(path)
    if not time_ms:
        return "no measurement"
    family, names = NETWORKS[parsed["network"]]
    inference = parsed["mode"] == "inf"
    return Record(
        source=SOURCE,
        source_file=f"scripts/asplos/label/{path.parent.name}/{path.name}",
        source_line=1,
        network=f"hf:{names[parsed['mode']]}",
        family=family,
        device=device,
        framework="torch",
        version=VERSION,
        compiled=parsed["fused"] is not None,
        memory_format="channels_first",
        mode="inference" if inference else "training",
        precision="fp32",
        batch_size=int(parsed["batch"]),
        image_size=0,
        time_ms=time_ms,
        label="forward" if inference else "forward, loss, backward",
        dims=f"seq={int(parsed['seq'])}",
        attention="decomposed",
        node_times_ms=node_times_ms(path.with_suffix(".csv")),
    )


def _end_to_end_ms(path: Path) -> float:
    """Milliseconds of the whole run; 0 where the file has none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        value = float(content.get("e2e_latency") or 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path.parent.name}/{path.name}: not the result of a run ({error})") from error
    return value if math.isfinite(value) and value > 0 else 0.0
