import pytest

from gnnperf.hardware import Software


def test_software_defaults() -> None:
    software = Software()
    assert (software.framework, software.version, software.release) == ("torch", "2.9", (2, 9))
    assert (software.compiled, software.memory_format, software.attention) == (False, "channels_first", "fused")
    assert Software(framework="onnxruntime").version == "1.23"
    assert len({software, Software(version="2.9")}) == 1
    assert Software(version="2.10").release > Software(version="2.9").release
    assert Software(version="2.9.1+cu128").release == (2, 9)


def test_attention_follows_framework_and_version() -> None:
    assert Software(version="1.13").attention == "decomposed"
    assert Software(version="2.0").attention == "fused"
    assert Software(version="1.13", attention_implementation="fused").attention == "fused"
    assert Software(attention_implementation="decomposed").attention == "decomposed"
    assert Software(framework="tensorflow").attention == "decomposed"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"framework": "jax"}, "framework must be one of torch, onnxruntime, tensorflow, not 'jax'"),
        ({"memory_format": "nhwc"}, "memory_format must be one of channels_first, channels_last, not 'nhwc'"),
        ({"attention_implementation": "sdpa"}, "attention_implementation must be one of fused, decomposed"),
        ({"version": 2.9}, "version must be a string such as '2.9', not 2.9"),
        ({"version": "pt2.9"}, "version must be a string"),
        ({"version": "2"}, "version must be a string"),
        ({"version": "2.9\n"}, "version must be a string"),
        ({"version": None}, "version must be a string"),
        ({"compiled": "yes"}, "compiled must be True or False, not 'yes'"),
        ({"compiled": True, "version": "1.13"}, "compiled needs torch 2.0 or later, not 1.13"),
    ],
)
def test_software_validation(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        Software(**fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)
