import copy
import random
import threading

import numpy as np
import pytest
import timm
import torch
from graph_queries import Wrapped, dtypes, named, ops
from torch import nn

from gnnperf.capture import capture
from gnnperf.cost import node_cost


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


def small_bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    return transformers.BertModel(config)


def small_vit() -> nn.Module:
    return timm.create_model("test_vit")


IMAGE = torch.randn(2, 3, 32, 32)
NETWORKS = {
    "cnn": (SmallCnn, IMAGE),
    "vit": (small_vit, torch.randn(2, 3, 160, 160)),
    "bert": (small_bert, {"input_ids": torch.ones(2, 7, dtype=torch.int64)}),
}


def state(module: nn.Module) -> list[object]:
    parts = []
    for name, part in module.named_modules():
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._forward_hooks_always_called)
        parts.append((name, part.training, sorted(vars(part)), *(list(h.items()) for h in hooks)))
    return parts


def tensors(module: nn.Module) -> dict[str, tuple[object, ...]]:
    everything = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        k: (id(t), t._version, t.clone(), None if t.grad is None else t.grad.clone()) for k, t in everything.items()
    }


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "amp"])
def test_the_module_stays_as_it_was_found(name: str, precision: str) -> None:
    build, inputs = NETWORKS[name]
    module = build().train()
    module.register_forward_hook(lambda *_: None)
    next(module.children()).eval()
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    given = copy.deepcopy(inputs)
    before, before_tensors = state(module), tensors(module)
    torch.manual_seed(3), np.random.seed(4), random.seed(5)
    graph = capture(module, inputs, precision=precision)
    drawn = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(3), np.random.seed(4), random.seed(5)

    assert len(graph.nodes) > 4
    assert state(module) == before
    after = tensors(module)
    assert after.keys() == before_tensors.keys()
    for key, (identity, version, value, grad) in before_tensors.items():
        assert after[key][:2] == (identity, version), key
        assert torch.equal(after[key][2], value) and (grad is None or torch.equal(after[key][3], grad)), key
    assert (
        torch.equal(drawn[0], torch.rand(3)) and (drawn[1] == np.random.rand(3)).all() and drawn[2] == random.random()
    )
    assert not torch.is_autocast_enabled("cuda") and torch.is_grad_enabled()
    for old, new in zip(nn.ParameterList(_leaves(given)), nn.ParameterList(_leaves(inputs)), strict=True):
        assert torch.equal(old, new)


def _leaves(inputs: object) -> list[torch.Tensor]:
    return [t.float() for t in (inputs.values() if isinstance(inputs, dict) else [inputs])]


def test_modules_that_draw_random_numbers_leave_the_random_state() -> None:
    def draw(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x * float(torch.rand(())) * random.random() * float(np.random.rand())

    torch.manual_seed(3), np.random.seed(4), random.seed(5)
    capture(Wrapped(draw), torch.ones(2))
    drawn = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(3), np.random.seed(4), random.seed(5)
    assert (
        torch.equal(drawn[0], torch.rand(3)) and (drawn[1] == np.random.rand(3)).all() and drawn[2] == random.random()
    )


def test_inference_means_eval_mode_without_gradients() -> None:
    graph = capture(SmallCnn().train(), IMAGE)
    assert "dropout" not in ops(graph)
    (norm,) = named(graph, "batch_norm")
    assert norm.attributes["training"] is False
    assert {node.phase for node in graph.nodes} == {"forward"}


def test_sizes_of_the_module() -> None:
    graph = capture(SmallCnn(), IMAGE)
    # convolution 8x3x3x3 + 8, batch norm 8 + 8, linear 5x8 + 5; running mean and variance, and an int64 counter
    count = 216 + 8 + 16 + 40 + 5
    assert (graph.parameter_count, graph.parameter_bytes, graph.buffer_bytes) == (count, 4 * count, 2 * 8 * 4 + 8)
    half = capture(SmallCnn(), IMAGE, precision="fp16")
    assert (half.parameter_count, half.parameter_bytes, half.buffer_bytes) == (count, 2 * count, 2 * 8 * 2 + 8)
    assert capture(SmallCnn(), IMAGE, precision="amp").parameter_bytes == 4 * count


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp64", "float64"), ("fp32", "float32"), ("tf32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")],
)
def test_precisions_convert_weights_and_inputs(precision: str, dtype: str) -> None:
    graph = capture(SmallCnn(), IMAGE, precision=precision)
    assert graph.precision == precision
    assert {t for node in graph.nodes for t in dtypes(node)} == {dtype}
    assert [t.dtype for t in graph.inputs] == [dtype]
    assert "cast" not in ops(graph)
    full = capture(SmallCnn(), IMAGE)
    assert [node_cost(n).flops for n in graph.nodes] == [node_cost(n).flops for n in full.nodes]


def test_integer_inputs_stay_integers() -> None:
    graph = capture(nn.Embedding(10, 4), torch.zeros(2, 3, dtype=torch.int64), precision="fp16")
    assert dtypes(graph.nodes[0]) == ["float16", "int64"]


def test_nodes_know_their_module() -> None:
    graph = capture(SmallCnn(), IMAGE)
    assert [node.module for node in graph.nodes] == ["body.0", "body.1", "body.2", "", "head"]


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(2, 3), torch.randn(2, 3)),
        [torch.randn(2, 3), torch.randn(2, 3)],
        {"x": torch.randn(2, 3), "y": torch.randn(2, 3)},
    ],
)
def test_positional_and_keyword_inputs(inputs: object) -> None:
    graph = capture(Wrapped(lambda self, x, y: x + y), inputs)
    assert ops(graph) == ["add"] and len(graph.inputs) == 2


def test_a_mapping_that_is_no_dict_gives_keyword_arguments() -> None:
    transformers = pytest.importorskip("transformers")
    inputs = transformers.BatchEncoding({"x": torch.randn(2, 3), "y": torch.randn(2, 3)})
    assert ops(capture(Wrapped(lambda self, x, y: x + y), inputs)) == ["add"]


def test_hooks_of_the_module_run() -> None:
    module = nn.Linear(3, 4)
    module.register_forward_hook(lambda module, args, out: out.relu())
    module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    assert ops(capture(module, torch.randn(2, 3))) == ["add", "linear", "relu"]


def test_a_failure_names_the_place_in_one_line() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise TypeError("no such thing\nand much more")

    module = nn.Sequential(nn.ReLU(), nn.ModuleDict({"odd": Odd()})["odd"])
    with pytest.raises(ValueError, match=r"^Sequential does not run on the given input \(in 1\): no such thing$"):
        capture(module, torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"^Linear does not run on the given input: linear: input \(2, 5\)"):
        capture(nn.Linear(3, 4), torch.randn(2, 5))
    with pytest.raises(ValueError, match=r"^net does not run on the given input \(in 1\): "):
        capture(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3)), torch.randn(2, 5, 8, 8), name="net")


def test_a_caught_failure_is_no_failure() -> None:
    class Fallback(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.wide = nn.Linear(3, 4), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.narrow(x)
            except RuntimeError:
                return self.wide(x)

    graph = capture(Fallback(), torch.randn(2, 5))
    assert [(node.op, node.module) for node in graph.nodes] == [("linear", "wide")]


def test_values_of_tensors_are_not_known() -> None:
    with pytest.raises(ValueError, match="needs the value of a tensor") as raised:
        capture(Wrapped(lambda self, x: x if x.sum() > 0 else -x), torch.randn(2, 3))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"module": len}, "capture takes a torch.nn.Module that runs eagerly, not builtin_function_or_method"),
        ({"mode": "serving"}, "mode must be one of inference, training, not 'serving'"),
        ({"precision": "fp8"}, "precision must be one of fp64, fp32, tf32, fp16, bf16, amp, amp_bf16, not 'fp8'"),
        ({"optimizer": "adamw"}, "belong to mode='training'"),
        ({"loss": torch.sum}, "belong to mode='training'"),
    ],
)
def test_wrong_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        capture(**{"module": nn.ReLU(), "example_inputs": torch.randn(2), **changes})


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_scripted_part_is_named_with_the_remedy() -> None:
    part = torch.jit.script(nn.Linear(4, 4))
    message = r"^'1' of Sequential is scripted \(Linear\): .*leave out torch.jit.script or torch.jit.trace for that sub"
    with pytest.raises(ValueError, match=message):
        capture(nn.Sequential(nn.ReLU(), part), torch.zeros(2, 4))


def test_a_capture_at_another_batch_scales_the_inputs() -> None:
    module = Wrapped(lambda self, x, y: torch.cat([part + y for part in x.split(4)]))
    inputs = torch.zeros(4, 6), torch.zeros(6)
    assert ops(capture(module, inputs)) == ["add", "concat"]
    graph = capture(module, inputs, batch_size=8)
    assert ops(graph) == ["add", "add", "concat"]
    assert (graph.batch_size, graph.inputs[0].shape, graph.inputs[1].shape) == (8, (8, 6), (6,))
    assert capture(module, inputs, batch_size=4).content_hash == capture(module, inputs).content_hash


@pytest.mark.parametrize(
    ("shape", "batch_size", "message"),
    [
        ((4, 6), 0, "batch size must be a positive integer, not 0"),
        ((4, 6), 5, r"cannot be captured at batch 5: Wrapped does not run on the given input: shape '\[4, 6\]' is inv"),
        ((4, 6), 2**62, "cannot be captured at batch 4611686018427387904: Storage size calculation overflowed"),
        ((), 5, "cannot be captured at batch 5: no input has the batch as its first dimension"),
    ],
)
def test_batches_that_cannot_be_captured(shape: tuple[int, ...], batch_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        capture(Wrapped(lambda self, x: x.view(shape).relu()), torch.zeros(shape), batch_size=batch_size)
    assert "\n" not in str(raised.value)


def test_a_thread_that_does_not_trace_is_not_recorded() -> None:
    started, finished = threading.Event(), threading.Event()
    results = []

    def compute() -> None:
        started.wait(10)
        attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
        x, mask = torch.ones(2, 3, 8), torch.zeros(2, 3, dtype=torch.bool)
        results.append((torch.nn.functional.linear(x, torch.ones(4, 8)), attention(x, x, x, key_padding_mask=mask)[0]))
        finished.set()

    def wait(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        started.set()
        finished.wait(10)
        return x.relu()

    thread = threading.Thread(target=compute)
    thread.start()
    graph = capture(Wrapped(wait), torch.randn(2, 3), precision="amp")
    thread.join()
    assert ops(graph) == ["relu"]
    ((linear, attended),) = results
    assert torch.equal(linear, torch.full((2, 3, 4), 8.0)) and attended.dtype == torch.float32
    assert torch.backends.mha.get_fastpath_enabled()


def test_two_threads_trace_at_once() -> None:
    graphs: dict[int, list[str]] = {}

    def trace(width: int) -> None:
        for _ in range(5):
            graph = capture(nn.Sequential(*[nn.Linear(4, 4)] * width), torch.randn(2, 4))
            graphs.setdefault(width, []).append("/".join(ops(graph)))

    threads = [threading.Thread(target=trace, args=(width,)) for width in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert graphs == {2: ["linear/linear"] * 5, 3: ["linear/linear/linear"] * 5}
    with pytest.raises(RuntimeError):  # nothing of torch stays changed
        torch.autocast("meta")
