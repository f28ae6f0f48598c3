"""Costs by hand arithmetic; those of ops that small networks run stand in the tests of the capture."""

import math
from dataclasses import replace

import pytest

from gnnperf.cost import Cost, node_cost
from gnnperf.graph import Node, TensorSpec


def t(*shape: int, dtype: str = "float32", kind: str = "activation") -> TensorSpec:
    return TensorSpec(shape, dtype, kind)


def weight(*shape: int) -> TensorSpec:
    return t(*shape, kind="parameter")


def index(*shape: int) -> TensorSpec:
    return t(*shape, dtype="int64")


def cost(op: str, inputs: list[TensorSpec], outputs: list[TensorSpec], **attributes: object) -> Cost:
    return node_cost(Node("node", op, tuple(inputs), tuple(outputs), attributes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "flops_an_element"),
    [("relu", 1), ("add", 1), ("where", 1), ("clamp", 1), ("square", 2), ("hardswish", 3), ("exp", 8), ("gelu", 16)],
)
def test_elementwise(op: str, flops_an_element: int) -> None:
    priced = cost(op, [t(4, 6)], [t(4, 6)])
    assert priced == Cost(24 * flops_an_element, 96, 96, 0, "elementwise")


def test_only_convolutions_that_mix_channels_are_products() -> None:
    image, out = t(2, 8, 5, 5), t(2, 8, 3, 3)
    dense = cost("conv", [image, weight(8, 8, 3, 3)], [out], groups=1)
    depthwise = cost("conv", [image, weight(8, 1, 3, 3)], [out], groups=8)
    assert (dense.matrix, depthwise.matrix) == (True, False)
    assert dense.flops == 8 * depthwise.flops == 2 * 2 * 8 * 9 * 8 * 9


def test_layer_norm_copies_rows_that_do_not_lie_in_one_piece() -> None:
    operand, scale = t(2, 5, 5, 8), weight(8)
    together = cost("layer_norm", [operand, scale], [operand])
    apart = cost("layer_norm", [replace(operand, layout="permuted"), scale], [operand])
    size = 2 * 5 * 5 * 8 * 4
    assert (together.bytes_read, together.bytes_written, together.kernels) == (size + 32, size, 1)
    assert (apart.bytes_read, apart.bytes_written, apart.kernels) == (2 * size + 32, 2 * size, 2)


def test_fused_attention_keeps_its_scores_out_of_memory() -> None:
    q, k, v = t(2, 8, 10, 16, dtype="float16"), t(2, 8, 20, 16, dtype="float16"), t(2, 8, 20, 32, dtype="float16")
    out = t(2, 8, 10, 32, dtype="float16")
    priced = cost("attention", [q, k, v], [out], attention_implementation="fused")
    scores = 2 * 8 * 10 * 20
    assert priced.flops == 2 * scores * 16 + 2 * scores * 32
    assert priced.bytes_read == (2 * 8 * 10 * 16 + 2 * 8 * 20 * 16 + 2 * 8 * 20 * 32) * 2
    assert priced.bytes_written == 2 * 8 * 10 * 32 * 2
    assert (priced.op_class, priced.matrix, priced.kernels) == ("attention", True, 1)


@pytest.mark.parametrize("masked", [False, True])
def test_decomposed_attention_pays_for_its_scores(masked: bool) -> None:
    q, mask = t(2, 8, 10, 16), t(10, 10)
    priced = cost("attention", [q, q, q, *([mask] if masked else [])], [q], attention_implementation="decomposed")
    scores = 2 * 8 * 10 * 10
    matrix, operand = scores * 4, 2 * 8 * 10 * 16 * 4
    assert priced.flops == 2 * scores * 16 * 2 + 5 * scores
    # query times key writes the scores; scaling, mask and softmax read and write them; the last product reads them
    written = matrix * (1 + 1 + masked + 1)
    read = matrix * (1 + masked + 1 + 1)
    # the last product writes its result, which a copy that merges the heads reads and writes
    assert priced.bytes_written == written + 2 * operand
    assert priced.bytes_read == 3 * operand + (400 if masked else 0) + read + operand
    assert priced.kernels == 5 + masked


def test_causal_attention_counts_as_masked_where_it_is_decomposed() -> None:
    q = t(2, 8, 10, 16)
    plain, causal = (
        cost("attention", [q, q, q], [q], attention_implementation="decomposed", causal=c) for c in (False, True)
    )
    assert causal.kernels == plain.kernels + 1
    assert causal.bytes - plain.bytes == 2 * (2 * 8 * 10 * 10 * 4)


def test_recurrent_layers_whose_weights_are_computed() -> None:
    x, state = t(5, 2, 3), t(1, 2, 4)
    matrices = [t(16, 3), t(16, 4), t(16), t(16)]
    priced = cost("lstm", [x, state, state, *matrices], [t(5, 2, 4)], num_layers=1, bidirectional=False)
    assert priced.flops == 10 * 2 * (16 * 3 + 16 * 4) + 10 * 10 * 16
    assert priced.parameter_bytes == 0
    priced = cost("gru", [x, state, t(12, 3), t(12, 4)], [t(5, 2, 4)], num_layers=1, bidirectional=False)
    assert priced.flops == 10 * 2 * (12 * 3 + 12 * 4) + 10 * 10 * 12


def test_grouped_matmul_reads_the_weights_of_every_group() -> None:
    priced = cost("grouped_matmul", [t(10, 6), weight(4, 6, 8), index(4)], [t(10, 8)])
    assert priced.flops == 2 * 10 * 6 * 8
    assert priced.parameter_bytes == 4 * 6 * 8 * 4


def test_pairwise_distance() -> None:
    assert cost("cdist", [t(5, 3), t(7, 3)], [t(5, 7)]).flops == 5 * 7 * 3 * 3


def test_pairwise_distance_by_a_product() -> None:
    priced = cost("cdist", [t(30, 3), t(40, 3)], [t(30, 40)], by_product=True)
    norms, product, root = 2 * 3 * (30 + 40), 2 * 30 * 40 * (3 + 2), 9 * 30 * 40
    assert priced.flops == norms + product + root and priced.matrix


def test_cross_entropy_of_logits() -> None:
    assert cost("binary_cross_entropy_with_logits", [t(4, 6), t(4, 6)], [t()]).flops == 12 * 24


@pytest.mark.parametrize(
    ("op", "attributes", "flops_an_element"),
    [
        ("batch_norm", {"training": False}, 2),
        ("batch_norm", {}, 2),
        ("batch_norm", {"training": True}, 7),
        ("layer_norm", {}, 7),
        ("group_norm", {}, 7),
        ("rms_norm", {}, 7),
    ],
)
def test_normalization(op: str, attributes: dict[str, bool], flops_an_element: int) -> None:
    priced = cost(op, [t(2, 4, 3), weight(4), weight(4)], [t(2, 4, 3)], **attributes)
    assert priced.flops == 24 * flops_an_element
    assert (priced.bytes_read, priced.bytes_written, priced.parameter_bytes) == (128, 96, 32)


@pytest.mark.parametrize(("kernel", "window"), [([3, 3], 9), (3, 9), ([3], 9), ([2, 4], 8)])
def test_pooling_windows(kernel: object, window: int) -> None:
    assert cost("max_pool", [t(1, 2, 8, 8)], [t(1, 2, 4, 4)], kernel_size=kernel).flops == 32 * window


@pytest.mark.parametrize(
    ("mode", "shape", "taps"),
    [
        ("nearest2d", (1, 2, 8, 8), 1),
        ("nearest_exact1d", (1, 2, 8), 1),
        ("linear1d", (1, 2, 8), 2),
        ("bilinear2d", (1, 2, 8, 8), 4),
        ("bicubic2d", (1, 2, 8, 8), 16),
        ("trilinear3d", (1, 2, 8, 8, 8), 8),
    ],
)
def test_resizing(mode: str, shape: tuple[int, ...], taps: int) -> None:
    out = t(*shape)
    assert cost("resize", [t(*(s // 2 or 1 for s in shape))], [out], mode=mode).flops == 2 * taps * out.elements


def test_gathering_reads_what_it_picks() -> None:
    priced = cost("gather", [weight(1000, 8), index(3)], [t(3, 8)])
    assert (priced.bytes_read, priced.bytes_written, priced.parameter_bytes) == (3 * 8 * 4 + 3 * 8, 96, 96)
    integers = cost("gather", [index(1000, 8), index(3)], [index(3, 8)])
    assert integers.bytes_read == 3 * 8 * 8 + 3 * 8


@pytest.mark.parametrize(
    ("inputs", "attributes", "expected"),
    [
        # three rows of eight put in place: indices and rows read, rows written
        ([t(100, 8), index(3), t(3, 8)], {"in_place": True}, (0, 24 + 96, 96)),
        # a number put in place: what it touches is said
        ([t(100, 8), index(3), t()], {"in_place": True, "elements": 24}, (0, 24 + 4, 96)),
        # added in place: rows are read as well
        ([t(100, 8), index(3), t(3, 8)], {"in_place": True, "accumulate": True}, (24, 24 + 96 + 96, 96)),
        # out of place, as in ONNX: the whole base is copied first
        ([t(100, 8), index(3), t(3, 8)], {}, (0, 3200 + 24 + 96, 3200 + 96)),
    ],
)
def test_scattering(inputs: list[TensorSpec], attributes: dict[str, object], expected: tuple[int, int, int]) -> None:
    priced = cost("scatter", inputs, [inputs[0]], **attributes)
    assert (priced.flops, priced.bytes_read, priced.bytes_written) == expected


def test_sorting_compares_along_its_axis() -> None:
    assert cost("sort", [t(4, 16)], [t(4, 16), index(4, 16)], axes=[1]).flops == 64 * 4
    assert cost("topk", [t(4, 16)], [t(2, 16), index(2, 16)], axes=[0]).flops == 64 * 2
    assert cost("unique", [t(8)], [t(8)]).flops == 8 * 3


def test_fourier_transforms_count_the_longer_side() -> None:
    priced = cost("fft", [t(3, 16)], [t(3, 9, dtype="complex64")], axes=[1])
    assert priced.flops == 5 * 48 * math.log2(16)
    assert priced.bytes == 48 * 4 + 27 * 8


def test_filling_writes_only() -> None:
    assert cost("fill", [], [t(4, 6)]) == Cost(0, 0, 96, 0, "movement")


def test_reductions() -> None:
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "argmax"):
        assert cost(op, [t(4, 6)], [t(4)], axes=[1]).flops == 24
        assert cost(op, [t(4, 6)], [t()]).flops == 24
    assert cost("reduce_variance", [t(4, 6)], [t(4)], axes=[1]).flops == 3 * 24
