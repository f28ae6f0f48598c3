"""CUDA's automatic mixed precision, by a table of our own.

``torch.autocast("cuda")`` does nothing on a machine without a GPU and ``torch.autocast("cpu")`` casts other ops, so
the rules of the CUDA backend stand here. Source: the op lists in torch's ``ATen/autocast_mode.h`` and "Autocast Op
Reference" in the torch documentation.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from gnnperf.capture.interception import Op, register
from gnnperf.graph import Allocation, ComputationGraph, Edge, Node, TensorSpec

_DEVICE = "cuda"

_CONVOLUTIONS = """_convolution _convolution.deprecated convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input"""
_PRODUCTS = "addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot"
_CELLS = "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
# cuDNN's recurrent layers cast their weights as a whole; the whole layers are ours to intercept.
RECURRENT = "lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data"

LOWER_PRECISION = frozenset(
    f"""{_CONVOLUTIONS} prelu {_PRODUCTS} {_CELLS} {RECURRENT}
    scaled_dot_product_attention""".split()
)
FP32 = frozenset(
    """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
    upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa norm.Scalar norm.ScalarOpt_dim""".split()
)
# Reductions that accumulate and return fp32 by themselves when asked: no separate cast.
FP32_RESULT = frozenset(
    """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList""".split()
)
WIDEST = frozenset(
    """addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add""".split()
)

register(sorted(LOWER_PRECISION | FP32 | FP32_RESULT | WIDEST))

_PROCESS = threading.RLock()
_is_enabled, _lower_dtype, _init = torch.is_autocast_enabled, torch.get_autocast_dtype, torch.autocast.__init__
_is_available, _cast_inputs = torch.amp.is_autocast_available, torch.amp.autocast_mode._cast


@contextmanager
def autocast_on_meta() -> Iterator[None]:
    """Take a region of autocast for CUDA although there is no GPU, and one for ``meta``, which torch refuses, for CUDA.

    Modules name the device of their tensors, which is ``meta`` while we run them. Other threads wait: the functions of
    torch that answer here are those of the whole process.
    """
    with (
        _PROCESS,
        patch.object(torch, "is_autocast_enabled", lambda device=_DEVICE: _is_enabled(_as_cuda(device))),
        patch.object(torch, "get_autocast_dtype", lambda device: _lower_dtype(_as_cuda(device))),
        patch.object(torch.amp.autocast_mode, "_cast", _cast_as_cuda),
        patch.object(torch.amp, "is_autocast_available", lambda device: _is_available(_as_cuda(device))),
        patch.object(torch.autocast, "__init__", _init_as_cuda),
        patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        patch.object(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
    ):
        yield


def _as_cuda(device: str) -> str:
    return _DEVICE if device == "meta" else device


def _cast_as_cuda(value: Any, device_type: str, dtype: torch.dtype) -> Any:
    """What ``torch.amp.custom_fwd`` makes of an operand: it casts the tensors of its own device alone."""
    return _cast_inputs(value, "meta" if device_type == _DEVICE else device_type, dtype)


def _init_as_cuda(region: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
    _init(region, _as_cuda(device_type), *args, **kwargs)


class Autocast:
    """Casts the operands of an op as CUDA's autocast would, wherever it is on."""

    def __init__(self) -> None:
        self._weights: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    @contextmanager
    def on(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Let modules see CUDA's autocast on, in ``dtype``, or off, and switch it themselves as they would on a GPU.

        Casts of weights are kept until the outermost region of autocast ends, as torch keeps them.
        """
        enabled, previous = _is_enabled(_DEVICE), _lower_dtype(_DEVICE)
        torch.set_autocast_enabled(_DEVICE, dtype is not None)
        torch.set_autocast_dtype(_DEVICE, dtype or torch.float16)
        if dtype is not None:
            torch.autocast_increment_nesting()
        try:
            with autocast_on_meta(), patch.object(torch, "clear_autocast_cache", self._weights.clear):
                yield
        finally:
            torch.set_autocast_enabled(_DEVICE, enabled)
            torch.set_autocast_dtype(_DEVICE, previous)
            if dtype is not None and torch.autocast_decrement_nesting() == 0:
                self._weights.clear()

    def __call__(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands with which ``op`` runs under autocast."""
        if not _is_enabled(_DEVICE):
            return args, kwargs
        lower = _lower_dtype(_DEVICE)
        name = op.__name__.removesuffix(".default").removeprefix("aten::")
        if name in LOWER_PRECISION:
            return self._cast((args, kwargs), lower)
        if name in FP32:
            return self._cast((args, kwargs), torch.float32)
        if name in FP32_RESULT:
            return args, self._ask_fp32(op, args, kwargs)
        if name in WIDEST:
            wide = torch.float32 in {t.dtype for t in _tensors(args)}
            return self._cast((args, kwargs), torch.float32 if wide else lower)
        return args, kwargs

    def _ask_fp32(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        position = next(i for i, a in enumerate(op._schema.arguments) if a.name == "dtype")
        given = kwargs.get("dtype") if position >= len(args) else args[position]
        if given is None and isinstance(args[0], torch.Tensor) and args[0].dtype in (torch.float16, torch.bfloat16):
            return {**kwargs, "dtype": torch.float32}
        return kwargs

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            return self._cast_tensor(value, dtype)
        if isinstance(value, tuple | list):
            return type(value)(self._cast(item, dtype) for item in value)
        if isinstance(value, dict):
            return {key: self._cast(item, dtype) for key, item in value.items()}
        return value

    def _cast_tensor(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.dtype in (dtype, torch.float64):
            return tensor
        cached = dtype is not torch.float32 and tensor.dtype is torch.float32
        cached = cached and tensor.requires_grad and tensor.is_leaf and torch.is_autocast_cache_enabled()
        if not cached or tensor._is_view():
            return tensor.to(dtype)
        # A weight is cast once in a region of autocast, as torch's own cache does.
        key = (id(tensor), dtype)
        if key not in self._weights:
            self._weights[key] = (tensor, tensor.to(dtype))
        return self._weights[key][1]


def _tensors(args: tuple[Any, ...]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.Tensor)]


def with_bf16_autocast(graph: ComputationGraph) -> ComputationGraph:
    """The graph of an ``amp`` capture as it would be in ``amp_bf16``.

    CUDA casts the same operands for both, except that its softmax from a lower precision to fp32 exists for fp16 only:
    bf16 is cast first.

    Raises:
        ValueError: If the graph's precision is another.
    """
    if graph.precision != "amp":
        raise ValueError(f"only an amp graph can be turned into amp_bf16, not one in {graph.precision}")
    into: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        into.setdefault(edge.target, []).append(replace(edge, tensor=_in_bf16((edge.tensor,))[0]))
    nodes: list[Node] = []
    edges: list[Edge] = []
    moved: list[int] = []  # position of every node of ``graph`` in ``nodes``
    casts: list[Allocation] = []
    for position, node in enumerate(graph.nodes):
        sources = [replace(e, source=moved[e.source], target=len(nodes)) for e in into.get(position, ())]
        node = replace(node, inputs=_in_bf16(node.inputs), outputs=_in_bf16(node.outputs))
        if node.op in ("softmax", "log_softmax") and node.inputs[0].dtype != node.outputs[0].dtype:
            wide = replace(node.inputs[0], dtype="float32", kind="activation", broadcast=())
            cast = replace(node, op="cast", outputs=(wide,), attributes={}, attribute_slopes={})
            edges += sources
            sources = [Edge(len(nodes), len(nodes) + 1, wide)]
            casts.append(Allocation(len(nodes), len(nodes) + 1, wide.bytes, wide.rescale(1).bytes - wide.bytes))
            nodes.append(replace(cast, name=f"cast_{len(nodes)}"))
            node = replace(node, inputs=(wide,))
        edges += sources
        moved.append(len(nodes))
        nodes.append(replace(node, name=f"{node.op}_{len(nodes)}"))
    inputs, outputs = _in_bf16(graph.inputs), _in_bf16(graph.outputs)
    memory = [*(replace(a, first=moved[a.first], last=moved[a.last]) for a in graph.allocations), *casts]
    return replace(
        graph,
        nodes=tuple(nodes),
        edges=tuple(edges),
        precision="amp_bf16",
        inputs=inputs,
        outputs=outputs,
        allocations=tuple(sorted(memory, key=lambda a: a.first)),
    )


def _in_bf16(tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return tuple(replace(t, dtype="bfloat16") if t.dtype == "float16" else t for t in tensors)
