import pytest
import torch

from gnnperf import networks

pytest.importorskip("torchvision")


@pytest.mark.parametrize(
    ("name", "parameters", "shape"),
    [
        ("resnet18", 11_689_512, (2, 3, 224, 224)),
        ("vgg16", 138_357_544, (2, 3, 224, 224)),
        ("vit_b_16", 86_567_656, (2, 3, 224, 224)),
        ("googlenet", 6_624_904, (2, 3, 224, 224)),
        ("inception_v3", 27_161_264, (2, 3, 299, 299)),
        ("efficientnet_b3", 12_233_232, (2, 3, 300, 300)),
        ("swin_v2_t", 28_351_570, (2, 3, 256, 256)),
        ("regnet_y_400mf", 4_344_144, (2, 3, 224, 224)),
        ("lraspp_mobilenet_v3_large", 3_221_538, (2, 3, 520, 520)),
        ("r3d_18", 33_371_472, (2, 3, 16, 112, 112)),
        ("mvit_v2_s", 34_537_744, (2, 3, 16, 224, 224)),
    ],
)
def test_published_size_and_input(name: str, parameters: int, shape: tuple[int, ...]) -> None:
    model = networks.build(f"torchvision:{name}", batch_size=2)
    (images,) = model.example_inputs
    assert images.shape == shape and images.is_meta
    assert sum(p.numel() for p in model.module.parameters()) == parameters
    assert all(t.is_meta for t in (*model.module.parameters(), *model.module.buffers()))
    with torch.no_grad():
        model.module(images)


def test_sizes_that_were_asked_for() -> None:
    vit = networks.build("torchvision:vit_b_16", image_size=384)
    assert vit.module(*vit.example_inputs).shape == (1, 1000)
    clip = networks.build("torchvision:r3d_18", image_size=64, dims={"frames": 8})
    assert clip.example_inputs[0].shape == (1, 3, 8, 64, 64)  # type: ignore[index]
    first, second = networks.build("torchvision:raft_small", image_size=128, batch_size=2).example_inputs
    assert first.shape == second.shape == (2, 3, 128, 128)


def test_auxiliary_heads_run_in_training_only() -> None:
    trained = networks.build("torchvision:googlenet", batch_size=2, mode="training")
    assert trained.module.training and len(trained.module(*trained.example_inputs)) == 3
    plain = networks.build("torchvision:googlenet")
    assert plain.module(*plain.example_inputs).shape == (1, 1000)


def test_detection_takes_a_list_of_images_and_targets_in_training() -> None:
    (pictures,) = networks.build("torchvision:ssd300_vgg16", batch_size=2).example_inputs
    assert [p.shape for p in pictures] == [(3, 300, 300)] * 2
    pictures, targets = networks.build(
        "torchvision:maskrcnn_resnet50_fpn", batch_size=2, mode="training"
    ).example_inputs
    assert len(pictures) == len(targets) == 2
    assert {k: tuple(v.shape) for k, v in targets[0].items()} == {
        "boxes": (1, 4),
        "labels": (1,),
        "masks": (1, 800, 800),
    }


def test_errors_are_one_line_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"torchvision:resnet19 is unknown: did you mean .*torchvision:resnet18"):
        networks.build("torchvision:resnet19")
    with pytest.raises(ValueError, match="takes frames"):
        networks.build("torchvision:r3d_18", dims={"seq": 8})
    with pytest.raises(ValueError, match="vit_b_16 cannot be built for image_size=100"):
        networks.build("torchvision:vit_b_16", image_size=100)
    with pytest.raises(ValueError, match="clips of 16 frames of 224 pixels and no others"):
        networks.build("torchvision:mvit_v2_s", image_size=112)
