import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnperf import networks

pytest.importorskip("transformers")


# Sizes as the model pages of the Hugging Face Hub show them (their safetensors metadata).
PUBLISHED = {
    "bert-base-uncased": 109_514_298,
    "bert-large-uncased": 335_174_458,
    "roberta-base": 124_697_433,
    "distilbert-base-uncased": 66_985_530,
    "albert-base-v2": 11_221_680,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "llama-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "phi-2": 2_779_683_840,
    "gemma-2b": 2_506_172_416,
    "pythia-160m": 162_322_944,
    "bloom-560m": 559_214_592,
    "falcon-7b": 6_921_720_704,
    "t5-small": 60_506_624,
    "flan-t5-base": 247_577_856,
    "bart-base": 139_420_416,
    "vit-base-patch16-224": 86_567_656,
    "whisper-tiny": 37_760_640,
    "clip-vit-base-patch32": 151_277_313,
    "mamba-130m": 129_135_360,
}


def _run(model: networks.ZooModel) -> Any:
    assert isinstance(model.example_inputs, dict)
    with torch.no_grad():
        return model.module(**model.example_inputs)


def _shapes(model: networks.ZooModel) -> dict[str, tuple[int, ...]]:
    assert isinstance(model.example_inputs, dict)
    return {name: tuple(tensor.shape) for name, tensor in model.example_inputs.items()}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # The encoder's 335,141,888 and a head: 1,025 * 1,024 + 2 * 1,024, 30,522 biases, two classes; or these alone.
        ("bert-large-uncased-for-pretraining", 335_141_888 + 1_051_648 + 30_522 + 2_050),
        ("bert-large-uncased-for-sequence-classification", 335_141_888 + 2_050),
        # Of width h: (12 h + 13) h a layer, (50,257 + 2,048) h of embeddings, 2 h of the last norm.
        ("gpt3-xl-3072", 24 * (12 * 3072 + 13) * 3072 + 52_305 * 3072 + 2 * 3072),
        ("gpt3-2.7b", 32 * (12 * 2560 + 13) * 2560 + 52_305 * 2560 + 2 * 2560),
    ],
)
def test_size_worked_out_by_hand(name: str, parameters: int) -> None:
    assert sum(p.numel() for p in networks.build(f"hf:{name}").module.parameters()) == parameters


def test_bert_is_pretrained_on_both_of_its_losses() -> None:
    model = networks.build("hf:bert-base-uncased-for-pretraining", batch_size=2, dims={"seq": 16}, mode="training")
    assert isinstance(model.example_inputs, dict)
    assert {k: tuple(v.shape) for k, v in model.example_inputs.items()} == {
        "input_ids": (2, 16),
        "labels": (2, 16),
        "next_sentence_label": (2,),
    }
    assert model.module(**model.example_inputs).loss.shape == ()


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_size(name: str, parameters: int) -> None:
    module = networks.build(f"hf:{name}").module
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert all(t.is_meta for t in (*module.parameters(), *module.buffers()))
    assert {p.dtype for p in module.parameters()} == {torch.float32}


def test_a_large_network_is_built_in_no_time() -> None:
    networks.build("hf:llama-7b")
    start = time.perf_counter()
    networks.build("hf:llama-7b")
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("name", ["llama-2-7b", "Llama-2-7B", "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b"])
def test_spellings_of_one_checkpoint(name: str) -> None:
    assert type(networks.build(f"hf:{name}").module).__name__ == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [("gpt2", 50_257), ("bert-base-uncased", 30_522), ("qwen2-0.5b", 151_936), ("opt-125m", 50_272)],
)
def test_language_models_predict_every_token_without_a_cache(name: str, vocabulary: int) -> None:
    model = networks.build(f"hf:{name}", batch_size=2, dims={"seq": 16})
    assert _shapes(model) == {"input_ids": (2, 16)}
    output = _run(model)
    assert output.logits.shape == (2, 16, vocabulary)
    assert getattr(output, "past_key_values", None) is None


def test_encoder_decoder_has_two_lengths() -> None:
    model = networks.build("hf:t5-small", batch_size=2, dims={"seq": 16})
    assert _shapes(model) == {"input_ids": (2, 16), "decoder_input_ids": (2, 16)}
    model = networks.build("hf:t5-small", dims={"seq": 16, "decoder_seq": 4})
    assert _run(model).logits.shape == (1, 4, 32_128)
    speech = networks.build("hf:whisper-tiny", dims={"decoder_seq": 4})
    assert _shapes(speech) == {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 4)}
    assert _run(speech).logits.shape == (1, 4, 51_865)


def test_images_and_image_text_pairs() -> None:
    assert _run(networks.build("hf:vit-base-patch16-224", batch_size=2)).logits.shape == (2, 1000)
    large = networks.build("hf:vit-base-patch16-224", image_size=384)
    assert _shapes(large) == {"pixel_values": (1, 3, 384, 384)}
    assert _run(large).logits.shape == (1, 1000)
    pairs = networks.build("hf:clip-vit-base-patch32", batch_size=2)
    assert _shapes(pairs) == {"input_ids": (2, 77), "pixel_values": (2, 3, 224, 224)}
    assert _run(pairs).logits_per_image.shape == (2, 2)


@pytest.mark.parametrize("name", ["mixtral", "switch-base-8", "gpt_oss"])
def test_mixtures_of_experts_run_without_data(name: str) -> None:
    model = networks.build(f"hf:{name}", batch_size=2, dims={"seq": 9})
    assert _run(model).logits.shape[:2] == (2, 9)


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "t5-small", "vit-base-patch16-224"])
def test_training_gets_labels_and_the_output_a_loss(name: str) -> None:
    model = networks.build(f"hf:{name}", batch_size=2, mode="training")
    assert isinstance(model.example_inputs, dict)
    output = model.module(**model.example_inputs)
    assert model.module.training and output.loss.shape == () and output.loss.requires_grad


def test_a_model_type_stands_for_its_default_config() -> None:
    assert type(networks.build("hf:bert").module).__name__ == "BertForMaskedLM"
    assert type(networks.build("hf:opt").module).__name__ == "OPTForCausalLM"
    assert type(networks.build("hf:marian").module).__name__ == "MarianMTModel"


def test_a_config_file(tmp_path: Path) -> None:
    values = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "bfloat16",
        "vocab_size": 100,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    for name in (file, tmp_path):
        module = networks.build(f"hf:{name}").module
        # Two tables, two layers of four square projections, three of the feed-forward and two norms, and the last norm.
        assert sum(p.numel() for p in module.parameters()) == 2 * 1600 + 2 * (4 * 256 + 3 * 512 + 2 * 16) + 16
        assert {p.dtype for p in module.parameters()} == {torch.float32}
    file.write_text("{}")
    with pytest.raises(ValueError, match="it has no model_type"):
        networks.build(f"hf:{file}")
    file.write_text('{"model_type": "nothing"}')
    with pytest.raises(ValueError, match="has no model_type 'nothing': install a newer one"):
        networks.build(f"hf:{file}")
    with pytest.raises(ValueError, match="there is no file"):
        networks.build(f"hf:{tmp_path / 'other.json'}")


def test_tensors_with_data_still_get_transformers_own_answers() -> None:
    from transformers import masking_utils

    networks.build("hf:gpt2")
    packed = torch.tensor([[0, 1, 2, 0, 1]])
    indices = masking_utils.find_packed_sequence_indices(packed)
    assert indices.tolist() == [[0, 0, 0, 1, 1]]
    assert masking_utils.find_packed_sequence_indices(packed.to("meta")) is None


def test_errors_are_one_line_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"hf:bert-base-uncase is unknown: did you mean .*hf:bert-base-uncased"):
        networks.build("hf:bert-base-uncase")
    with pytest.raises(ValueError, match="reads input_ids, no images: leave image_size out"):
        networks.build("hf:gpt2", image_size=224)
    with pytest.raises(ValueError, match="has no dimension 'length': it takes seq"):
        networks.build("hf:gpt2", dims={"length": 3})
    with pytest.raises(ValueError, match="has positions for 1024 tokens, not for 1025: ask for fewer"):
        networks.build("hf:gpt2", dims={"seq": 1025})
    assert _shapes(networks.build("hf:llama-7b", dims={"seq": 4096})) == {"input_ids": (1, 4096)}
