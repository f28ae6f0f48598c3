import pytest

from gnnperf.hardware import load_device


def test_peak_flops_per_s() -> None:
    ada = load_device("rtx-4090")
    assert ada.peak_flops_per_s("fp16", matrix=True) == 165.2e12
    assert ada.peak_flops_per_s("fp16", matrix=False) == 82.6e12
    assert ada.peak_flops_per_s("fp32", matrix=True) == 82.6e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("tf32", matrix=True) == 156e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("fp32", matrix=True) == 19.5e12
    assert load_device("a100-pcie-40gb").peak_flops_per_s("fp64", matrix=True) == 19.5e12
    pascal = load_device("gtx-1080-ti")
    for precision in ("fp32", "tf32", "fp16", "bf16", "int8"):  # fp16 is slower than fp32 there, so nobody uses it
        assert pascal.peak_flops_per_s(precision, matrix=True) == pascal.vector_flops_per_s["fp32"]
    assert pascal.peak_flops_per_s("fp64", matrix=True) < pascal.vector_flops_per_s["fp32"] / 30
    volta = load_device("v100-pcie-32gb")
    assert volta.peak_flops_per_s("bf16", matrix=True) == volta.peak_flops_per_s("fp32", matrix=True)
    assert volta.peak_flops_per_s("fp16", matrix=False) == 2 * volta.vector_flops_per_s["fp32"]
    mi100 = load_device("mi100")
    assert mi100.peak_flops_per_s("tf32", matrix=True) == mi100.matrix_flops_per_s["fp32"]
    with pytest.raises(ValueError, match="'amp' is not one of fp64"):
        ada.peak_flops_per_s("amp", matrix=True)
