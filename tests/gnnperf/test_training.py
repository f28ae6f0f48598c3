from dataclasses import replace

import pytest
import torch

from gnnperf.training import TrainingConfig, make_optimizer, rate_factor


def test_the_optimizer_is_the_one_asked_for():
    module = torch.nn.Linear(2, 2)
    adamw = make_optimizer(module, TrainingConfig())
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.defaults["lr"] == 2e-3 and adamw.defaults["weight_decay"] == 0.02
    sgd = make_optimizer(module, TrainingConfig(optimizer="sgd", learning_rate=0.1, momentum=0.8))
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.defaults["lr"] == 0.1 and sgd.defaults["momentum"] == 0.8
    with pytest.raises(ValueError, match="write adamw or sgd"):
        make_optimizer(module, replace(TrainingConfig(), optimizer="adam"))


def test_the_rate_rises_and_falls():
    factors = [rate_factor(step, 100) for step in range(100)]
    assert factors[0] == 0.2 and max(factors) == factors[4] == 1.0
    assert factors[5:] == sorted(factors[5:], reverse=True) and factors[-1] == pytest.approx(0.01, abs=1e-2)
