"""Names that GenEval's prompts use: the 80 object classes of COCO, some of them renamed, and ten colours.

Imports nothing, so that prompts are checked without torch.
"""

from typing import Final

# fmt: off
CLASSES: Final = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "computer mouse", "tv remote", "computer keyboard", "cell phone", "microwave", "oven", "toaster",
    "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)
# fmt: on
"""[80] in the order of COCO's contiguous labels, which is how a detector's label becomes a name."""

COLORS: Final = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
"""[10] in the order of the published classifier, which decides between equal scores (the first one wins)."""

RELATIONS: Final = ("left of", "right of", "above", "below")

OTHER_NAMES: Final = {
    "motorcycle": ("motorbike",),
    "airplane": ("aeroplane",),
    "couch": ("sofa",),
    "potted plant": ("pottedplant",),
    "dining table": ("diningtable",),
    "tv": ("tvmonitor",),
    "computer mouse": ("mouse",),
    "tv remote": ("remote",),
    "computer keyboard": ("keyboard",),
    "hair drier": ("hair dryer",),
}
"""What COCO itself and published checkpoints call a class where GenEval says otherwise."""


def is_label_of(label: str, name: str) -> bool:
    """Whether a checkpoint's label means the class of that GenEval name."""
    return label.strip().lower() in (name, *OTHER_NAMES.get(name, ()))
