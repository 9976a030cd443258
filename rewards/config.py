"""Configuration of rewards: which scorer, its arguments, and which prompts it applies to.

Imports pydantic only, so that a recipe is checked without torch. `args` of a built-in scorer are checked here, when the
recipe is loaded; those of a user's scorer are checked by its own constructor.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from rewards.scorer_args import (
    Address,
    AestheticArgs,
    ClipscoreArgs,
    Hpsv2Args,
    ImagerewardArgs,
    PickscoreArgs,
    UnifiedrewardArgs,
)

DOTTED_PATH = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
"""`package.module:Name`, the form in which recipes name a class of their own."""

_SCORER_NAME = re.compile(r"^[A-Za-z_][\w.-]*$")

Condition = Literal["always", "quoted", "metadata"]
"""On a prompt: none, a target text in it, or `include` in its metadata."""
DottedPath = Annotated[str, StringConstraints(pattern=DOTTED_PATH)]


class _Model(BaseModel):
    """Unknown keys are errors, and a loaded recipe does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OcrArgs(_Model):
    """Arguments of the OCR scorer."""

    match: Literal["published", "strict"] = "published"
    """Matching rule for training (see rewards.matching); evaluation always reports `strict`."""
    upsample: int | None = Field(default=None, ge=32, le=2000)
    """Pixels: smaller images are enlarged (bicubic) until their shorter side has this many; None leaves them. The cost
    grows with it: 64-pixel signs are read as well at 128 as at 256, in half the time."""
    engine: Literal["rapidocr", "paddleocr"] = "rapidocr"
    """Which reader stands behind the scorer. paddleocr (2.7 or later) is not among our packages."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """paddleocr only: further arguments of its constructor, such as model folders; they win over ours."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the engine runs; `cuda` needs onnxruntime-gpu or paddlepaddle-gpu and fails without it."""
    num_threads: int = Field(default=1, ge=1)
    """Intra-op threads of the engine."""
    min_confidence: float = Field(default=0.5, ge=0.0, le=1.0)
    """Lines read with less confidence are dropped; 0.5 is PP-OCR's own default."""
    line_width: int = Field(default=320, ge=48, le=3200)
    """rapidocr only. Pixels at 48 pixels height: lines are padded to this width at least. Less is faster on short
    texts."""

    @model_validator(mode="after")
    def _args_are_the_engines(self) -> Self:
        if self.engine == "rapidocr" and self.engine_args:
            raise ValueError(f"engine_args belong to engine paddleocr, got {', '.join(self.engine_args)} for rapidocr")
        if self.engine == "paddleocr" and self.line_width != type(self).model_fields["line_width"].default:
            raise ValueError(f"line_width belongs to engine rapidocr, got {self.line_width} for paddleocr")
        return self


class Mask2FormerArgs(_Model):
    """Arguments of rewards.mask2former:Mask2FormerDetector."""

    checkpoint: str = Field(min_length=1)
    """Local folder in the transformers format, or a hub id (facebook/mask2former-swin-small-coco-instance)."""
    revision: str | None = None
    """Commit or tag of a hub checkpoint; a hub id is not loaded without."""
    device: str = "cpu"
    """Torch device."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the network computes in; confidences and masks are always made in float32."""
    batch_size: int = Field(default=8, ge=1)
    """Images per forward pass."""
    short_side: int = Field(default=800, ge=32)
    """Pixels the network sees: images are scaled until their shorter side has this many ..."""
    long_side: int = Field(default=1333, ge=32)
    """... or their longer side this many, if that is smaller. 800 and 1333 are the published numbers."""
    min_confidence: float = Field(default=0.3, ge=0.0, le=0.3)
    """Instances that are not surer are not handed on; GenEval's rules look at all above 0.3 and at none below."""


class ClipColorsArgs(_Model):
    """Arguments of rewards.clip_colors:ClipColors."""

    checkpoint: str = Field(min_length=1)
    """Local folder in the transformers CLIP format, or a hub id (openai/clip-vit-large-patch14)."""
    revision: str | None = None
    """Commit or tag of a hub checkpoint; a hub id is not loaded without."""
    device: str = "cpu"
    """Torch device."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in."""


ARGS_OF_GENEVAL_PART: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        "rewards.mask2former:Mask2FormerDetector": Mask2FormerArgs,
        "rewards.clip_colors:ClipColors": ClipColorsArgs,
    }
)
"""Detectors and colour classifiers that come with this package, with the models of their arguments."""


class GenevalArgs(_Model):
    """Arguments of the GenEval scorer."""

    detector: DottedPath
    """Class that keeps rewards.detection.Detector."""
    detector_args: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    """Keyword arguments of the detector."""
    colors: DottedPath | None = None
    """Class that keeps rewards.detection.ColorClassifier; None where no prompt asks for a colour."""
    colors_args: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    """Keyword arguments of the colour classifier."""
    score: Literal["graded", "strict", "correct"] = "graded"
    """Which figure training sees."""
    report: Literal["strict", "correct"] = "correct"
    """Which figure evaluation reports; published tables have `correct`."""
    clip: bool = False
    """Bound the count part of the graded score at 0. The published score is unbounded below (16 found for 1: -14)."""

    @model_validator(mode="after")
    def _args_have_a_classifier(self) -> Self:
        if self.colors is None and self.colors_args:
            raise ValueError(f"colors_args need colors, the classifier they are for, got {', '.join(self.colors_args)}")
        return self

    @field_validator("detector_args", "colors_args")
    @classmethod
    def _args_fit_part(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Those of our own parts, filled in; anyone else's are checked by their constructor."""
        model = ARGS_OF_GENEVAL_PART.get(info.data.get(str(info.field_name).removesuffix("_args"), ""))
        return value if model is None else filled_args(model, value)


class HttpArgs(_Model):
    """Arguments of the HTTP scorer (docs/http_rewards.md)."""

    url: Address
    """Address of the reward server, `https://host:port`; `/v1/info` and `/v1/score` are below it."""
    reward: str | None = Field(default=None, min_length=1)
    """What the server must say that it serves, so that a wrong port is an error; None takes any."""
    images: Literal["npy", "png"] = "npy"
    """How images travel: raw, or smaller and slower as PNG. Both are exact."""
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """For one batch, retries included. Keep it below the pool's own timeout_s, which ends the replica."""
    connect_timeout_s: float = Field(default=5.0, gt=0, le=60)
    """For one connection."""
    retries: int = Field(default=3, ge=0, le=10)
    """After connection errors, 408, 425, 429 and 5xx."""
    token_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the bearer token; the token itself never stands in a recipe."""


ARGS_OF_BUILT_IN: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        "pickscore": PickscoreArgs,
        "hpsv2": Hpsv2Args,
        "clipscore": ClipscoreArgs,
        "aesthetic": AestheticArgs,
        "imagereward": ImagerewardArgs,
        "unifiedreward": UnifiedrewardArgs,
        "ocr": OcrArgs,
        "geneval": GenevalArgs,
        "http": HttpArgs,
    }
)
"""Short names of the scorers that come with this package, with the models of their arguments."""


def check_args(model: type[BaseModel], args: dict[str, Any]) -> BaseModel:
    """Arguments of a built-in scorer, every default filled in; strict, as the rest of a recipe: "128" is no number.

    Raises:
        ValidationError: an unknown key, a wrong type or range.
    """
    return model.model_validate(args, strict=True)


def filled_args(model: type[BaseModel], args: dict[str, Any]) -> dict[str, Any]:
    """Checked arguments as plain data with every default but the device: where the recipe is silent, its pool has it.

    Raises:
        ValidationError: as :func:`check_args`.
    """
    checked = check_args(model, args)
    return checked.model_dump(mode="json", exclude={"device"} - checked.model_fields_set)


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
        """Those of a built-in scorer, filled in: the run's record names checkpoints and commits."""
        model = ARGS_OF_BUILT_IN.get(info.data.get("scorer", ""))
        # pydantic puts `args` in front of the path of every error raised in here.
        return value if model is None else filled_args(model, value)

    def parts(self) -> Iterator[tuple[str, type[BaseModel], Mapping[str, Any]]]:
        """What of this package it is built of: where in `args` (empty for the scorer itself), their model, and they."""
        built_in = ARGS_OF_BUILT_IN.get(self.scorer)
        if built_in is None:
            return
        yield "", built_in, self.args
        for name in ("detector", "colors") if built_in is GenevalArgs else ():
            part = ARGS_OF_GENEVAL_PART.get(self.args.get(name) or "")
            if part is not None:
                yield f"{name}_args", part, self.args[f"{name}_args"]

    def on(self, device: str) -> Self:
        """The same, computing there wherever the recipe does not say where."""
        args = self.args
        for at, model, given in self.parts():
            if "device" in model.model_fields and "device" not in given:
                said = {**given, "device": device}
                args = {**args, at: said} if at else said
        return self.model_copy(update={"args": args})
