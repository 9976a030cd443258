"""Configuration of rewards: which scorer, its arguments, and which prompts it applies to.

Imports pydantic only, so that a recipe is checked without torch. `args` of a built-in scorer are checked here, when the
recipe is loaded; those of a user's scorer are checked by its own constructor.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

DOTTED_PATH = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
"""`package.module:Name`, the form in which recipes name a class of their own."""

_SCORER_NAME = re.compile(r"^[A-Za-z_][\w.-]*$")

Condition = Literal["always", "quoted", "metadata"]
"""On a prompt: none, a target text in it, or `include` in its metadata."""
DottedPath = Annotated[str, StringConstraints(pattern=DOTTED_PATH)]


class _Model(BaseModel):
    """Unknown keys are errors, and a loaded recipe does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ClipArgs(_Model):
    """Arguments of the CLIP-family scorer (PickScore, HPSv2, CLIPScore)."""

    checkpoint: str = Field(min_length=1)
    """Local folder in the transformers CLIP format, or a hub id `owner/name`."""
    kind: Literal["pickscore", "hpsv2", "clipscore"]
    """Which published score is computed, and how images are prepared for it."""
    revision: str | None = None
    """Commit or tag of a hub checkpoint; pin it in any run that counts."""
    processor: str | None = None
    """Folder or hub id of tokenizer and image preprocessing where the checkpoint has none (PickScore_v1)."""
    processor_revision: str | None = None
    """Commit or tag of a hub processor."""
    scale: Literal["training", "published"] = "training"
    """pickscore only: `training` divides logit_scale · cos by 26 as the public recipes do, `published` does not."""
    device: str = "cpu"
    """Torch device. In a run whose pool asks for a GPU it becomes `cuda` where the recipe does not say it."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in; cosines are always taken in float32."""
    batch_size: int = Field(default=32, ge=1)
    """Images per forward pass."""

    @field_validator("scale")
    @classmethod
    def _scale_needs_pickscore(cls, value: str, info: ValidationInfo) -> str:
        kind = info.data.get("kind")
        if value != "training" and kind not in (None, "pickscore"):
            raise ValueError(f"{value!r} is a choice for pickscore only, {kind} has one score")
        return value


class OcrArgs(_Model):
    """Arguments of the OCR scorer."""

    match: Literal["published", "strict"] = "published"
    """Matching rule for training (see rewards.matching); evaluation always reports `strict`."""
    upsample: int | None = Field(default=None, ge=32, le=2000)
    """Pixels: smaller images are enlarged (bicubic) until their shorter side has this many; None leaves them. The cost
    grows with it: 64-pixel signs are read as well at 128 as at 256, in half the time."""
    engine: Literal["rapidocr"] = "rapidocr"
    """Which reader stands behind the scorer."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where onnxruntime runs; `cuda` needs onnxruntime-gpu and fails without it."""
    num_threads: int = Field(default=1, ge=1)
    """Intra-op threads of each onnxruntime session."""
    min_confidence: float = Field(default=0.5, ge=0.0, le=1.0)
    """Lines read with less confidence are dropped; 0.5 is PP-OCR's own default."""
    line_width: int = Field(default=320, ge=48, le=3200)
    """Pixels at 48 pixels height: lines are padded to this width at least. Less is faster on short texts."""


class GenevalArgs(_Model):
    """Arguments of the GenEval scorer."""

    detector: DottedPath
    """Class that keeps rewards.detection.Detector."""
    detector_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the detector."""
    colors: DottedPath | None = None
    """Class that keeps rewards.detection.ColorClassifier; None where no prompt asks for a colour."""
    colors_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the colour classifier."""
    score: Literal["graded", "strict", "correct"] = "graded"
    """Which figure training sees; evaluation always reports `correct`."""
    clip: bool = False
    """Bound the count part of the graded score at 0. The published score is unbounded below (16 found for 1: -14)."""


ARGS_OF_BUILT_IN: Mapping[str, type[BaseModel]] = MappingProxyType(
    {"clip": ClipArgs, "ocr": OcrArgs, "geneval": GenevalArgs}
)
"""Short names of the scorers that come with this package, with the models of their arguments."""


def check_args(model: type[BaseModel], args: dict[str, Any]) -> BaseModel:
    """Arguments of a built-in scorer, every default filled in; strict, as the rest of a recipe: "128" is no number.

    Raises:
        ValidationError: an unknown key, a wrong type or range.
    """
    return model.model_validate(args, strict=True)


class RewardConfig(_Model):
    """One reward of a run."""

    scorer: str
    """Built-in short name, entry point of group `marble.rewards`, or dotted path `package.module:Class`."""
    args: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    """Keyword arguments of the scorer."""
    applies: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of the prompt sources it applies to; None is all of them."""
    when: Condition = "always"
    """Further condition on each prompt: `quoted` has a text in straight double quotes, `metadata` carries `include`."""

    @field_validator("scorer")
    @classmethod
    def _scorer_is_a_name(cls, value: str) -> str:
        if not _SCORER_NAME.match(value) and not re.match(DOTTED_PATH, value):
            raise ValueError(f"{value!r} is neither a scorer's name nor a dotted path package.module:Class")
        return value

    @field_validator("args")
    @classmethod
    def _args_fit_built_in(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        model = ARGS_OF_BUILT_IN.get(info.data.get("scorer", ""))
        if model is not None:
            # pydantic puts `args` in front of the path of every error raised in here.
            check_args(model, value)
        return value
