import weakref
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnnperf.capture import capture
from gnnperf.graph import Allocation, ComputationGraph, Edge, Node, TensorSpec
from gnnperf.hardware import Software, load_device
from gnnperf.memory import largest_batch_size, memory_parts_bytes, peak_memory_bytes

GPU, CPU = load_device("rtx-4090"), load_device("i9-10940x")


def floats(*shape, kind="activation"):
    return TensorSpec(shape, "float32", kind)


def node(name, inputs, outputs, op="relu", **attributes):
    return Node(name, op, tuple(inputs), tuple(outputs), attributes)


def chain(*sizes, outputs=None, **facts):
    """An input of 100 floats, and nodes that each read the one before."""
    given = floats(100, kind="input")
    tensors = [given, *(floats(size) for size in sizes)]
    nodes = tuple(node(f"n{i}", [tensors[i]], [tensors[i + 1]]) for i in range(len(sizes)))
    edges = tuple(Edge(i, i + 1, tensors[i + 1]) for i in range(len(sizes) - 1))
    results = (tensors[-1],) if outputs is None else outputs
    return ComputationGraph("chain", nodes, edges, (given,), results, **facts)


def test_an_activation_dies_after_its_last_reader():
    # 400 bytes of input stay; at the second node 4000 are read and 1200 written; the third reads 1200, writes 400.
    assert peak_memory_bytes(chain(1000, 300, 100)) == 400 + 4000 + 1200
    assert peak_memory_bytes(chain(10, 300, 2000)) == 400 + 1200 + 8000


def test_parameters_and_buffers_stay():
    assert peak_memory_bytes(chain(1000, 300, parameter_bytes=70, buffer_bytes=8)) == 78 + 400 + 5200


def test_a_gpu_rounds_every_tensor_up_to_blocks():
    graph = chain(1000, 300, parameter_bytes=70, buffer_bytes=8)
    assert peak_memory_bytes(graph, GPU) == 512 + 512 + 512 + 4096 + 1536
    assert peak_memory_bytes(graph, CPU) == peak_memory_bytes(graph)


def test_a_residual_lives_on():
    given, x = floats(100, kind="input"), floats(1000)
    nodes = (node("a", [given], [x]), node("b", [x], [x]), node("c", [x], [x]), node("add", [x, x], [x], "add"))
    edges = (Edge(0, 1, x), Edge(1, 2, x), Edge(0, 3, x), Edge(2, 3, x))
    assert peak_memory_bytes(ComputationGraph("residual", nodes, edges, (given,), (x,))) == 400 + 3 * 4000


def test_in_place_allocates_nothing():
    x = floats(1000)
    nodes = (node("a", [], [x], "fill"), node("b", [x], [x], in_place=True), node("c", [x], [x], in_place=True))
    edges = (Edge(0, 1, x), Edge(1, 2, x))
    assert peak_memory_bytes(ComputationGraph("in_place", nodes, edges, (), (x,))) == 4000


def test_in_place_on_an_input_allocates_nothing():
    given = floats(1000, kind="input")
    nodes = (node("a", [given], [given], in_place=True),)
    assert peak_memory_bytes(ComputationGraph("in_place", nodes, (), (given,), (given,))) == 4000


def test_a_sum_in_place_writes_the_operand_that_is_not_read_again():
    # b += a; later a is read once more, so what b holds (and not a) is what the sum writes into.
    x, y = floats(1000), floats(10)
    nodes = (
        node("a", [], [x], "fill"),
        node("b", [], [x], "fill"),
        node("sum", [x, x], [x], "add", in_place=True),
        node("last", [x, x], [y], "add"),
    )
    edges = (Edge(0, 2, x), Edge(1, 2, x), Edge(0, 3, x), Edge(2, 3, x))
    assert peak_memory_bytes(ComputationGraph("sum", nodes, edges, (), (y,))) == 8000 + 40


def test_filling_a_table_row_by_row_keeps_the_table():
    table, row = floats(100, 10), floats(10)
    nodes = (
        node("zeros", [], [table], "fill"),
        node("first", [], [row], "fill"),
        node("write", [row], [row], "copy", in_place=True),
        node("second", [], [row], "fill"),
        node("read", [table], [table]),
    )
    edges = (Edge(1, 2, row), Edge(0, 2, row), Edge(2, 4, table))
    assert peak_memory_bytes(ComputationGraph("table", nodes, edges, (), (table,))) == 2 * 4000
    # While the second row is made, the first is gone and the table is not.
    assert peak_memory_bytes(ComputationGraph("table", nodes[:4], edges[:2], (), (table,))) == 4000 + 40


def test_outputs_that_are_read_again_stay():
    hidden, small = floats(1000), floats(10)
    nodes = (node("a", [], [hidden], "fill"), node("b", [hidden], [small]), node("c", [small], [floats(500)]))
    edges = (Edge(0, 1, hidden), Edge(1, 2, small))
    assert peak_memory_bytes(ComputationGraph("last", nodes, edges, (), (floats(500),))) == 4000 + 40
    both = ComputationGraph("both", nodes, edges, (), (hidden, floats(500)))
    assert peak_memory_bytes(both) == 4000 + 40 + 2000


def test_a_result_that_nobody_reads_dies_at_once():
    nodes = (node("waste", [], [floats(1000)], "fill"), node("a", [], [floats(500)], "fill"))
    assert peak_memory_bytes(ComputationGraph("waste", nodes, (), (), (floats(500),))) == 4000


def test_memory_is_held_as_the_run_held_it_unless_a_compiler_rearranges_it():
    seen = (Allocation(0, 2, 4000, 1000.0), Allocation(1, 2, 1200, 300.0), Allocation(2, 2, 400, 100.0))
    graph = replace(chain(1000, 300, 100), allocations=seen)  # the first result is held by a local variable
    assert peak_memory_bytes(graph) == 400 + 4000 + 1200 + 400
    assert peak_memory_bytes(graph, GPU) == 512 + 4096 + 1536 + 512
    assert peak_memory_bytes(graph.rescale(3)) == 400 + (4000 + 1200 + 400) + 2 * (1000 + 300 + 100)
    assert peak_memory_bytes(graph, software=Software(compiled=True)) == 400 + 4000 + 1200


def test_a_cast_weight_stays():
    weight, half = floats(1000, kind="parameter"), TensorSpec((1000,), "float16", "parameter")
    nodes = (node("cast", [weight], [half], "cast"), node("use", [half], [floats(10)]), node("x", [], [floats(100)]))
    graph = ComputationGraph("cast", nodes, (Edge(0, 1, half),), (), (floats(100),), parameter_bytes=4000)
    assert peak_memory_bytes(graph) == 4000 + 2000 + 400


def test_attention_pays_for_the_scores_where_it_is_not_fused():
    query, key = floats(1, 2, 64, 8), floats(1, 2, 32, 8)
    nodes = (node("attention", [query, key, key], [query], "attention", attention_implementation="fused"),)
    graph = ComputationGraph("attention", nodes, (), (), (query,))
    assert peak_memory_bytes(graph) == 4096
    assert peak_memory_bytes(graph, software=Software(version="2.9")) == 4096
    assert peak_memory_bytes(graph, software=Software(version="1.13")) == 4096 + 2 * 4 * 2 * 64 * 32


class LiveBytes(TorchDispatchMode):
    """Counts bytes of storages that ops make, until Python lets go of them."""

    def __init__(self, *kept):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in kept}
        self.live = self.peak = sum(t.untyped_storage().nbytes() for t in kept)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in self.known:
                storage = leaf.untyped_storage()
                self.known.add(storage._cdata)
                self.live += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.live)
        return result

    def _free(self, key, size):
        self.known.discard(key)
        self.live -= size


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_real_run_holds_as_much(small_network, batch_size):
    x = torch.zeros(batch_size, 3, 32, 32)
    mode = measured(small_network, x, "inference", None)
    assert peak_memory_bytes(capture(small_network, x)) == pytest.approx(mode.peak, rel=0.02)


def measured(module, x, mode, optimizer_class):
    """Live bytes of a real run on the CPU; the optimizer has its state, gradients are None, as in every later step."""
    module.train(mode == "training")
    optimizer = None
    if optimizer_class is not None:
        optimizer = optimizer_class(module.parameters())
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    module.zero_grad(set_to_none=True)
    states = [] if optimizer is None else [t for s in optimizer.state.values() for t in s.values() if t.dim()]
    counted = LiveBytes(x, *module.parameters(), *module.buffers(), *states)
    if mode == "inference":
        with torch.no_grad(), counted:
            module(x)
        return counted
    with counted:
        out = module(x)
        torch.nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.int64)).backward()
        if optimizer is not None:
            optimizer.step()
    module.zero_grad(set_to_none=True)
    return counted


def perceptron():
    sizes = ((64, 128), (128, 128))
    layers = [part for size in sizes for part in (torch.nn.Linear(*size), torch.nn.ReLU())]
    return torch.nn.Sequential(torch.nn.Flatten(), *layers, torch.nn.Linear(128, 10))


TIMM = {
    "resnet18": 64,
    "mobilenetv3_small_050": 64,
    "test_vit": 160,
    "test_convnext": 96,
    "mixer_s32_224": 64,
    "regnety_002": 64,
    "densenet121": 64,
    "efficientnet_lite0": 64,
    "test_byobnet": 64,
}


@pytest.mark.parametrize("name", ["perceptron", *TIMM])
def test_real_runs_of_ten_networks_hold_as_much_in_inference_and_training(name):
    if name == "perceptron":
        module, x = perceptron(), torch.zeros(32, 64)
    else:
        timm, size = pytest.importorskip("timm"), TIMM[name]
        sizes = {"img_size": size} if name.startswith("mixer") else {}
        module, x = timm.create_model(name, num_classes=10, drop_rate=0.0, **sizes), torch.zeros(2, 3, size, size)
    for mode, optimizer in (("inference", None), ("training", None), ("training", torch.optim.AdamW)):
        real = measured(module, x, mode, optimizer)
        graph = capture(module, x, mode=mode, optimizer=optimizer)
        assert peak_memory_bytes(graph) == pytest.approx(real.peak, rel=0.01), (mode, optimizer)


class UNet(torch.nn.Module):
    """Keeps what the way down made in local variables until it returns."""

    def __init__(self):
        super().__init__()
        sizes = {"down": (3, 16), "low": (16, 32), "up": (48, 16)}
        self.stages = torch.nn.ModuleDict(
            {
                name: torch.nn.Sequential(torch.nn.Conv2d(*size, 3, padding=1), torch.nn.ReLU())
                for name, size in sizes.items()
            }
        )

    def forward(self, x):
        down = self.stages["down"](x)
        low = self.stages["low"](torch.nn.functional.max_pool2d(down, 2))
        wide = torch.nn.functional.interpolate(low, scale_factor=2)
        return self.stages["up"](torch.cat([wide, down], 1)).mean((2, 3))


class KeyCache(torch.nn.Module):
    """Allocates more than it writes."""

    def __init__(self):
        super().__init__()
        self.key = torch.nn.Linear(64, 64)

    def forward(self, x):
        cache = torch.empty(x.shape[0], 1024, 64, device=x.device)
        cache[:, : x.shape[1]] = self.key(x)
        return (cache[:, : x.shape[1]] @ x.transpose(1, 2)).sum(1)


class Unrolled(torch.nn.Module):
    """Calls one module again and again."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = torch.nn.GRUCell(32, 64), torch.nn.Linear(64, 5)

    def forward(self, x):
        state = torch.zeros(x.shape[0], 64, device=x.device)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (UNet(), torch.zeros(2, 3, 32, 32)),
        (KeyCache(), torch.zeros(2, 16, 64)),
        (Unrolled(), torch.zeros(8, 20, 32)),
        # Gradients of activations are as large as those of weights.
        (torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))), torch.zeros(64, 64)),
    ],
    ids=["unet", "key_cache", "unrolled", "square"],
)
def test_local_variables_gaps_and_repeated_calls_are_held_as_in_a_real_run(module, x):
    for mode, optimizer in (("inference", None), ("training", None), ("training", torch.optim.AdamW)):
        graph = capture(module, x, mode=mode, optimizer=optimizer)
        assert graph.allocations and not graph.rescale_error
        real = measured(module, x, mode, optimizer)
        assert peak_memory_bytes(graph) == pytest.approx(real.peak, rel=0.005), (mode, optimizer)
        other = measured(module, torch.cat([x, x]), mode, optimizer)
        assert peak_memory_bytes(graph.rescale(2 * len(x))) == pytest.approx(other.peak, rel=0.005)


def test_the_parts_of_a_step_add_up():
    module = torch.nn.Linear(100, 50)
    graph = capture(module, torch.zeros(4, 100), mode="training", optimizer="adamw")
    parts = memory_parts_bytes(graph)
    assert sum(parts.values()) == peak_memory_bytes(graph)
    size = (100 * 50 + 50) * 4
    assert (parts["parameters"], parts["optimizer state"], parts["gradients"]) == (size, 2 * size, size)
    assert parts["inputs"] == 4 * 100 * 4 + 4 * 8  # and the classes that the loss compares with
    # The loop over the parameters has two temporaries of the weight; a GPU's multi-tensor kernels one of everything.
    on_gpu = memory_parts_bytes(graph, GPU)
    assert parts["activations"] == pytest.approx(2 * 100 * 50 * 4, rel=0.2)
    assert on_gpu["activations"] == pytest.approx(size, rel=0.2)


def test_activations_wait_for_the_backward_pass():
    layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8)))
    x = torch.zeros(256, 64)
    kept = memory_parts_bytes(capture(layers, x, mode="training"))["activations"]
    assert kept == pytest.approx(16 * 256 * 64 * 4, rel=0.2)  # what each linear and each gelu writes
    assert memory_parts_bytes(capture(layers, x))["activations"] <= 3 * 256 * 64 * 4


def test_the_largest_batch_is_the_last_that_fits():
    graph = capture(perceptron(), torch.zeros(2, 64), mode="training", optimizer="adam")
    small = replace(CPU, memory_bytes=4_000_000)
    largest = largest_batch_size(graph, small)
    assert peak_memory_bytes(graph.rescale(largest), small) <= small.memory_bytes
    assert peak_memory_bytes(graph.rescale(largest + 1), small) > small.memory_bytes
    assert largest_batch_size(graph, replace(CPU, memory_bytes=1_000)) == 0
    with pytest.raises(ValueError, match="cannot be rescaled"):
        largest_batch_size(replace(graph, rescale_error="it does not"), small)
