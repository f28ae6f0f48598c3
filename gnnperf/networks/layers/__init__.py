"""``layer:KIND,FIELD=VALUE,...,FLAG,...`` networks: one layer or op, as benchmarks of layers run them.

``layer:conv2d,channels_in=16,channels_out=32,kernel=3,stride=2,padding=same,size=56,bias,relu``,
``layer:linear,features_in=512,features_out=1000,bias``, ``layer:matmul,rows=384,depth=64,columns=384``,
``layer:softmax,features=1024`` and ``layer:add,features=1024,scalar``. ``kinds`` lists the kinds, their fields and
flags and what runs; ``names`` takes such a name apart; ``trained_data`` is a step in which data are trained too.

The batch is the first dimension of every input. Where a kind has ``rows``, they are a second one if they are given:
(batch, rows, features), else (batch, features).
"""

from __future__ import annotations

import torch

from gnnperf.networks.base import Request, ZooModel, on_meta, size_errors_as_value_errors
from gnnperf.networks.layers.kinds import ACTIVATIONS, KINDS
from gnnperf.networks.layers.names import parse
from gnnperf.networks.layers.trained_data import TrainedData

__all__ = ["ACTIVATIONS", "KINDS", "TrainedData", "build", "parse"]


def build(request: Request) -> ZooModel:
    """Build a layer and its inputs, in one piece of memory each, on ``meta``.

    ``image_size`` stands above the field ``size``. With ``trained_data`` a training step is that of a benchmark in
    which the input, and a target of the output's shape, are variables: both get gradients and are updated like the
    weights, and the loss is the mean squared difference of output and target. Such a step is built for one batch size.

    Raises:
        ValueError: If a field is unknown, missing, given twice or out of range, or the sizes do not fit together.
    """
    request.sizes()
    layer = parse(request.source, request.name)
    if request.image_size is not None:
        if "size" not in layer.sizes:
            raise ValueError(f"{request.source} reads no images: leave image_size out")
        layer = layer.at_size(request.image_size)
    kind = KINDS[layer.kind]
    with size_errors_as_value_errors(request):
        module = on_meta(lambda: kind.module(layer))
    inputs = kind.inputs(layer, request.batch_size)
    if "trained_data" in layer.flags and request.mode == "training":
        (data,) = inputs
        return ZooModel(request.source, TrainedData(module, data), (torch.empty(len(data), 0, device="meta"),))
    return ZooModel(request.source, module, inputs)
