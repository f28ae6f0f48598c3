"""Lets transformers networks run on tensors without data.

Some forwards read values where only shapes matter to us: is a token padding, do several sequences share a row, which
experts got tokens. ``answer_on_meta`` answers these questions for ``meta`` tensors, which would raise otherwise, and
leaves every other tensor to transformers' own code.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch

Answer = Callable[..., Any]


def _no(*args: Any, **kwargs: Any) -> None:
    """No sequences share a row, and there is nothing to warn of."""


def _yes(*args: Any, **kwargs: Any) -> bool:
    """Every token counts: there is no padding."""
    return True


def _balanced_switch_experts(
    experts: Any, hidden_states: torch.Tensor, selected_experts: torch.Tensor, routing_weights: torch.Tensor
) -> torch.Tensor:
    """Switch's loop over experts, (tokens, width) to the same, with the tokens spread evenly over all of them."""
    result = torch.zeros_like(hidden_states)
    tokens = math.ceil(hidden_states.shape[0] / len(experts))
    for expert in experts.values():
        rows = torch.empty(tokens, dtype=torch.int64, device="meta")
        choice = torch.zeros_like(rows)
        output = expert(hidden_states[rows]) * routing_weights[rows, choice, None]
        result.index_add_(0, rows, output.to(result.dtype))
    return result


# (module, attribute path) -> what it answers when one of its arguments is a tensor on ``meta``.
ANSWERS: dict[tuple[str, str], Answer] = {
    ("transformers.masking_utils", "find_packed_sequence_indices"): _no,
    ("transformers.masking_utils", "fast_all"): _yes,
    ("transformers.modeling_utils", "PreTrainedModel.warn_if_padding_and_no_attention_mask"): _no,
    (
        "transformers.models.switch_transformers.modeling_switch_transformers",
        "SwitchTransformersExperts.forward",
    ): _balanced_switch_experts,
}


def answer_on_meta(module_name: str) -> None:
    """Have the functions of a transformers module that read values answer for ``meta`` tensors; safe to repeat."""
    for (module, path), answer in ANSWERS.items():
        if module != module_name:
            continue
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        original = getattr(owner, name, None)  # absent in some versions of transformers
        if original is not None and not hasattr(original, "answers_on_meta"):
            setattr(owner, name, _answering(original, answer))


def _answering(original: Answer, answer: Answer) -> Answer:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor))
        return (answer if any(t.is_meta for t in tensors) else original)(*args, **kwargs)

    wrapper.answers_on_meta = True  # type: ignore[attr-defined]
    return wrapper
