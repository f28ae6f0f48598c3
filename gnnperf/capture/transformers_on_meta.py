"""Lets transformers networks run on tensors without data.

Some forwards read values where only shapes matter to us: is a token padding, do several sequences share a row, which
experts got tokens. ``answer_on_meta`` answers these questions for ``meta`` tensors, which would raise otherwise, and
leaves every other tensor to transformers' own code.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import torch

Answer = Callable[..., Any]


def _no(*args: Any, **kwargs: Any) -> None:
    """No sequences share a row, nothing to warn of, nothing wrong."""


def _yes(*args: Any, **kwargs: Any) -> bool:
    """Every token counts: there is no padding."""
    return True


def _unpadded(padding_mask: torch.Tensor, kv_length: int, local_attention_size: int | None = None) -> bool:
    """Whether attention in both directions needs no mask, given that every token counts."""
    return local_attention_size is None or kv_length < local_attention_size


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


def _balanced_grouped_mm(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """(rows, in) times (experts, in, out) as one batched product, the rows spread evenly over the experts."""
    rows, experts = input.shape[0], min(weight.shape[0], input.shape[0])
    each = math.ceil(rows / experts)
    padded = torch.nn.functional.pad(input, (0, 0, 0, experts * each - rows)) if rows % experts else input
    product = torch.bmm(padded.to(weight.dtype).reshape(experts, each, -1), weight[:experts])
    return product.reshape(experts * each, -1)[:rows]


# (module, attribute path) -> what it answers when one of its arguments is a tensor on ``meta``.
ANSWERS: dict[tuple[str, str], Answer] = {
    ("transformers.masking_utils", "find_packed_sequence_indices"): _no,
    ("transformers.masking_utils", "fast_all"): _yes,
    ("transformers.masking_utils", "_ignore_bidirectional_mask_sdpa"): _unpadded,
    ("transformers.utils.import_utils", "torch_compilable_check"): _no,
    ("transformers.modeling_utils", "PreTrainedModel.warn_if_padding_and_no_attention_mask"): _no,
    ("transformers.integrations.moe", "_grouped_mm"): _balanced_grouped_mm,
    (
        "transformers.models.switch_transformers.modeling_switch_transformers",
        "SwitchTransformersExperts.forward",
    ): _balanced_switch_experts,
}


def answer_on_meta() -> None:
    """Have what reads values answer for ``meta`` tensors, in the transformers modules loaded so far; safe to repeat."""
    for (module, path), answer in ANSWERS.items():
        if module not in sys.modules:
            continue
        owner: Any = sys.modules[module]
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        original = getattr(owner, name, None)  # absent in some versions of transformers
        if original is not None and not hasattr(original, "answers_on_meta"):
            _replace(owner, name, original, _answering(original, answer))


def _replace(owner: Any, name: str, original: Answer, replacement: Answer) -> None:
    """Set an attribute of a module or class, and of the transformers modules that imported it from there."""
    setattr(owner, name, replacement)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("transformers.") and vars(module).get(name) is original:
            setattr(module, name, replacement)


def _answering(original: Answer, answer: Answer) -> Answer:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor))
        return (answer if any(t.is_meta for t in tensors) else original)(*args, **kwargs)

    wrapper.answers_on_meta = True  # type: ignore[attr-defined]
    return wrapper
