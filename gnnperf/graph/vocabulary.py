"""The words that a graph may use."""

from __future__ import annotations

MODES = ("inference", "training")
PHASES = ("forward", "loss", "backward", "optimizer")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "adagrad", "adadelta", "rmsprop")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16")
LAYOUTS = ("row_major", "channels_last", "permuted", "transposed")
TENSOR_KINDS = ("activation", "parameter", "constant", "input", "gradient", "state")
# Attributes that count something, so that they cannot be negative.
COUNTS = ("flops", "elements", "groups", "num_layers", "loop_scratch_bytes", "multi_tensor_scratch_bytes")

ITEM_BYTES: dict[str, float] = {
    "complex128": 16,
    "complex64": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int4": 0.5,
    "uint4": 0.5,
}
