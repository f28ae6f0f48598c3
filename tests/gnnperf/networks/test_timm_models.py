import pytest
import torch

from gnnperf import networks
from gnnperf.capture import capture_owned

timm = pytest.importorskip("timm")


def _parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "parameters", "image_size"),
    [
        ("resnet50", 25_557_032, 224),
        ("vit_base_patch16_224", 86_567_656, 224),
        ("convnext_tiny", 28_589_128, 224),
        ("swin_tiny_patch4_window7_224", 28_288_354, 224),
        ("efficientnet_b0", 5_288_548, 224),
        ("mobilenetv3_large_100", 5_483_032, 224),
        ("inception_v3", 23_834_568, 299),
        ("tf_efficientnet_b4", 19_341_616, 380),
    ],
)
def test_published_size_and_default_image(name: str, parameters: int, image_size: int) -> None:
    model = networks.build(f"timm:{name}", batch_size=3)
    (image,) = model.example_inputs
    assert model.name == f"timm:{name}"
    assert image.shape == (3, 3, image_size, image_size) and image.is_meta
    assert _parameters(model.module) == parameters
    assert all(t.is_meta for t in (*model.module.parameters(), *model.module.buffers()))
    with torch.no_grad():
        assert model.module(image).shape == (3, 1000)


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "resnet18", "maxvit_tiny_tf_224"]
)
def test_another_image_size_runs(name: str) -> None:
    model = networks.build(f"timm:{name}", image_size=384)
    (image,) = model.example_inputs
    assert image.shape == (1, 3, 384, 384)
    assert model.module(image).shape == (1, 1000)


def test_position_table_grows_with_the_image() -> None:
    tokens = networks.build("timm:vit_tiny_patch16_224", image_size=384).module.pos_embed
    assert isinstance(tokens, torch.Tensor) and tokens.shape[1] == 24 * 24 + 1


@pytest.mark.parametrize(
    ("name", "trained", "folded"),
    [("repvgg_a2", 28_210_600, 25_499_944), ("mobileone_s1", 4_825_192, 4_764_840)],
)
def test_reparameterized_form_has_the_published_size(name: str, trained: int, folded: int) -> None:
    assert _parameters(networks.build(f"timm:{name}").module) == trained
    model = networks.build(f"timm:{name}", reparameterize=True)
    assert _parameters(model.module) == folded
    assert all(t.is_meta for t in (*model.module.parameters(), *model.module.buffers()))
    assert model.module(*model.example_inputs).shape == (1, 1000)


def test_fast_norms_stay_in_the_lower_precision() -> None:
    def norm_dtypes(fast_norm: bool) -> set[str]:
        model = networks.build("timm:vit_tiny_patch16_224", fast_norm=fast_norm)
        graph = capture_owned(model.module, model.example_inputs, "inference", "amp", "vit")
        return {node.inputs[0].dtype for node in graph.nodes if node.op == "layer_norm"}

    assert norm_dtypes(False) == {"float32"} and norm_dtypes(True) == {"float16"}
    assert not timm.layers.is_fast_norm()


def test_known_tags_count_and_unknown_ones_are_dropped() -> None:
    tagged = networks.build("timm:vit_base_patch16_224.augreg_in21k")
    assert tagged.module(*tagged.example_inputs).shape == (1, 21_843)
    assert _parameters(networks.build("timm:resnet50.no_such_tag").module) == 25_557_032


def test_mode_sets_the_train_flag_and_random_state_stays() -> None:
    state = torch.random.get_rng_state()
    assert networks.build("timm:resnet18", mode="training").module.training
    assert not networks.build("timm:resnet18").module.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_errors_are_one_line_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"timm:resnet51 is unknown: did you mean .*timm:resnet50") as raised:
        networks.build("timm:resnet51")
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="has no dimension 'seq': it takes none"):
        networks.build("timm:resnet50", dims={"seq": 8})
