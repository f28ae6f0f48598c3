"""``torchvision:NAME`` networks: classification, segmentation, video, optical flow and detection."""

from __future__ import annotations

from typing import Any

import torch

from gnnperf.networks.base import (
    Request,
    ZooModel,
    images,
    import_optional,
    on_meta,
    size_errors_as_value_errors,
    unknown_name,
)

# Side of the (square) image in pixels where the published transforms do not crop to one.
DETECTION_SIZES = {"ssd300_vgg16": 300}
DETECTION_SIZE = 800
FLOW_SIZE = (520, 960)
# Frames of the clips that the published accuracies are for (`meta` of the weights in torchvision/models/video).
CLIP_FRAMES = {"s3d": 128, "swin3d_t": 32, "swin3d_s": 32, "swin3d_b": 32}
DEFAULT_CLIP_FRAMES = 16
KEYPOINTS = 17


def build(request: Request) -> ZooModel:
    """Build a torchvision network and its input on ``meta``; ``batch_size`` counts images, clips or image pairs.

    Inputs: images ``(N, 3, H, W)``; clips ``(N, 3, frames, H, W)`` with ``dims={"frames": 16}``; two image batches
    for optical flow; for detection a list of ``N`` images, and in training targets with one object each.

    Raises:
        ValueError: If torchvision is absent or does not know the name, or the network cannot take the sizes.
    """
    models = import_optional("torchvision.models", request.prefix)
    name = request.name.lower()
    if name not in models.list_models():
        raise unknown_name(request.source, request.name, models.list_models())
    task = models.get_model_builder(name).__module__.removeprefix("torchvision.models.").partition(".")[0]
    frames = CLIP_FRAMES.get(name, DEFAULT_CLIP_FRAMES)
    sizes = request.sizes(frames=frames) if task == "video" else request.sizes()
    height, width = _image_size(models, name, task, request)
    if name.startswith("mvit") and (height, sizes["frames"]) != (224, DEFAULT_CLIP_FRAMES):
        raise ValueError(f"{request.source} takes clips of {DEFAULT_CLIP_FRAMES} frames of 224 pixels and no others")
    options = _options(name, task, height, sizes, request)
    with size_errors_as_value_errors(request):
        module = on_meta(lambda: models.get_model(name, weights=None, **options))
    return ZooModel(request.source, module, _inputs(name, task, height, width, sizes, request))


def _image_size(models: Any, name: str, task: str, request: Request) -> tuple[int, int]:
    """Height and width in pixels: as asked, else as the transforms of the published weights crop or resize."""
    if request.image_size is not None:
        return request.image_size, request.image_size
    if task == "optical_flow":
        return FLOW_SIZE
    if task == "detection":
        size = DETECTION_SIZES.get(name, 320 if "320" in name else DETECTION_SIZE)
        return size, size
    published = list(models.get_model_weights(name))
    if not published:
        return 224, 224
    transforms = getattr(models.get_model_weights(name), "DEFAULT", published[-1]).transforms()
    size = (getattr(transforms, "crop_size", None) or transforms.resize_size)[0]
    return size, size


def _options(name: str, task: str, size: int, sizes: dict[str, int], request: Request) -> dict[str, Any]:
    """Constructor options: no weights anywhere, no slow initial values, and the image size where it is built in."""
    options: dict[str, Any] = {}
    if task in ("segmentation", "detection"):
        options["weights_backbone"] = None
    if name.endswith(("googlenet", "inception_v3")):
        options["init_weights"] = False
    if name == "googlenet" and request.mode == "inference":
        options["aux_logits"] = False  # the published weights come without the auxiliary heads
    if name.startswith("vit_"):
        options["image_size"] = size
    if name.startswith("maxvit"):
        options["input_size"] = (size, size)
    return options


def _inputs(name: str, task: str, height: int, width: int, sizes: dict[str, int], request: Request) -> tuple[Any, ...]:
    count = request.batch_size
    if task == "video":
        return (torch.empty(count, 3, sizes["frames"], height, width, device="meta"),)
    if task == "optical_flow":
        return images(count, 3, height, width), images(count, 3, height, width)
    if task == "detection":
        pictures = [torch.empty(3, height, width, device="meta") for _ in range(count)]
        if request.mode == "inference":
            return (pictures,)
        return pictures, [_target(name, height, width) for _ in range(count)]
    return (images(count, 3, height, width),)


def _target(name: str, height: int, width: int) -> dict[str, torch.Tensor]:
    """One labelled object, as a detection network wants it in training."""
    with torch.device("meta"):
        target = {"boxes": torch.empty(1, 4), "labels": torch.empty(1, dtype=torch.int64)}
        if name.startswith("maskrcnn"):
            target["masks"] = torch.empty(1, height, width, dtype=torch.uint8)
        if name.startswith("keypointrcnn"):
            target["keypoints"] = torch.empty(1, KEYPOINTS, 3)
    return target
