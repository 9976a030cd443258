"""A random Mask2Former in the published format: same files, same keys, sizes that load in a moment.

The published checkpoint was written by an older transformers: Swin's constant `relative_position_index` tables are in
it, the norm behind the last stage is not, and COCO's classes have VOC's spelling.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

SIDE = 64
SEED = 3
"""Of the one that the tests share."""
NUM_QUERIES = 12

# fmt: off
PUBLISHED_LABELS = (
    "person", "bicycle", "car", "motorbike", "aeroplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "sofa", "pottedplant", "bed", "diningtable", "toilet",
    "tvmonitor", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)
# fmt: on

PREPROCESSOR = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "ignore_index": 255,
    "image_mean": [0.48500001430511475, 0.4560000002384186, 0.4059999883174896],
    "image_processor_type": "Mask2FormerImageProcessor",
    "image_std": [0.2290000021457672, 0.2239999920129776, 0.22499999403953552],
    "num_labels": 80,
    "reduce_labels": False,
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 384, "width": 384},
    "size_divisor": 32,
}
"""As it stands beside the published checkpoint."""


def tiny_model(seed: int) -> Any:
    """A random model whose logits are large enough for some queries to be sure of a class and of a mask."""
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

    swin = SwinConfig(
        image_size=224,
        embed_dim=8,
        depths=[1, 1, 2, 1],
        num_heads=[1, 1, 2, 2],
        window_size=7,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    sizes = {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "num_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 3, "encoder_feedforward_dim": 32, "dim_feedforward": 32}
    config = Mask2FormerConfig(
        backbone_config=swin,
        num_queries=NUM_QUERIES,
        id2label=dict(enumerate(PUBLISHED_LABELS)),
        label2id={label: index for index, label in enumerate(PUBLISHED_LABELS)},
        **sizes,
        **layers,
    )
    torch.manual_seed(seed)
    model = Mask2FormerForUniversalSegmentation(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 3.0 if "queries" in name else 2.0 if name == "class_predictor.weight" else 0.15
            parameter.add_(torch.randn_like(parameter) * scale)
        # What all queries have in common is taken off: otherwise all of them name one class.
        logits = model(pixel_values=torch.randn(4, 3, SIDE, SIDE)).class_queries_logits
        model.class_predictor.bias.sub_(logits.mean(dim=(0, 1)))
    return model


def position_index() -> torch.Tensor:
    """Swin's constant [49, 49]: which entry of the bias table belongs to each pair of places in a 7 x 7 window."""
    places = torch.cartesian_prod(torch.arange(7), torch.arange(7))
    offsets = places[:, None] - places[None, :] + 6
    return offsets[..., 0] * 13 + offsets[..., 1]


def save_tiny_mask2former(folder: Path, seed: int) -> Path:
    """Save the model, its labels and its preprocessing as the published checkpoint has them."""
    from rewards.checkpoint import quiet_transformers

    model = tiny_model(seed)
    with quiet_transformers():
        model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = {key: value for key, value in load_file(path).items() if ".swin.layernorm." not in key}
    indices = {
        key.replace("bias_table", "index"): position_index()
        for key in tensors
        if key.endswith("relative_position_bias_table")
    }
    save_file(tensors | indices, path, metadata={"format": "pt"})
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
    return folder
