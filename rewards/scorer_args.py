"""Arguments of the scorers that are models, and the published checkpoints they stand for at pinned revisions.

Imports pydantic only. Args that name no checkpoint mean the published one. What args do name stands alone: the pinned
revision and the processor of the published checkpoint do not belong to another, nor its processor's revision to another
processor.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_OPENAI_CLIP = "openai/clip-vit-large-patch14"
_OPENAI_CLIP_REVISION = "32bd64288804d66eefd0ccbe215aa642df71cc41"
_LAION_CLIP = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"
_LAION_CLIP_REVISION = "1c2b8495b28150b8a4922ee1c8edee224c284c0c"


def _plain_address(value: str) -> str:
    parts = urlsplit(value)
    plain = parts.scheme in ("http", "https") and parts.hostname and not re.search(r"[\s?#]", value)
    if not plain:
        raise ValueError(f"{value!r} is no address like http://host:port or https://host/path")
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong into an address; name a variable in token_env")
    parts.port  # noqa: B018  # raises ValueError where it is no number up to 65535
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_plain_address)]
"""http or https, without credentials, query and final slash."""


class ScorerArgs(BaseModel):
    """Unknown keys are errors, and a loaded recipe does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelArgs(ScorerArgs):
    """Where a model runs and how much at once."""

    belongs_to: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By a field that names something published: the fields whose defaults hold for its own default only."""

    device: str = "cpu"
    """Torch device. In a run whose pool asks for a GPU it becomes `cuda` where the recipe does not say it."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in; scores are always taken in float32."""
    batch_size: int = Field(default=32, ge=1)
    """Images per forward pass."""

    @model_validator(mode="before")
    @classmethod
    def _what_is_named_stands_alone(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        foreign = [field for name, fields in cls.belongs_to.items() if name in data for field in fields]
        return dict.fromkeys(foreign) | data


class ClipArgs(ModelArgs):
    """A CLIP checkpoint in the transformers format."""

    belongs_to: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "checkpoint": ("revision", "processor", "processor_revision"),
        "processor": ("processor_revision",),
    }

    checkpoint: str = Field(min_length=1)
    """Local folder in the transformers CLIP format, or a hub id `owner/name`."""
    revision: str | None = None
    """Commit or tag of a hub checkpoint; a hub id is not loaded without."""
    processor: str | None = None
    """Folder or hub id of tokenizer and image preprocessing where the checkpoint has none."""
    processor_revision: str | None = None
    """Commit or tag of a hub processor."""


class PickscoreArgs(ClipArgs):
    """PickScore (Kirstain et al. 2023)."""

    checkpoint: str = Field(default="yuvalkirstain/PickScore_v1", min_length=1)
    """Local folder in the transformers CLIP format, or a hub id `owner/name`."""
    revision: str | None = "a4e4367c6dfa7288a00c550414478f865b875800"
    """Commit or tag of a hub checkpoint."""
    processor: str | None = _LAION_CLIP
    """Folder or hub id of tokenizer and image preprocessing; the published code takes the base model's."""
    processor_revision: str | None = _LAION_CLIP_REVISION
    """Commit or tag of a hub processor."""
    scale: Literal["training", "published"] = "training"
    """`training` divides logit_scale · cos by 26 as the public recipes do, `published` does not."""


class Hpsv2Args(ClipArgs):
    """HPSv2.1 (Wu et al. 2023)."""

    checkpoint: str = Field(default="xswu/HPSv2", min_length=1)
    """The published open_clip file, a folder or hub id that holds it, or a folder in the transformers CLIP format."""
    revision: str | None = "697403c78157020a1ae59d23f111aa58ced35b0a"
    """Commit or tag of a hub checkpoint."""
    file: str = Field(default="HPS_v2.1_compressed.pt", min_length=1)
    """Name of the open_clip file inside a folder or hub repository."""
    processor: str | None = _LAION_CLIP
    """Folder or hub id of configuration, tokenizer and preprocessing: an open_clip file has none of them."""
    processor_revision: str | None = _LAION_CLIP_REVISION
    """Commit or tag of a hub processor."""


class ClipscoreArgs(ClipArgs):
    """CLIPScore of CLIP ViT-L-14."""

    checkpoint: str = Field(default=_OPENAI_CLIP, min_length=1)
    """Local folder in the transformers CLIP format, or a hub id `owner/name`."""
    revision: str | None = _OPENAI_CLIP_REVISION
    """Commit or tag of a hub checkpoint."""


class AestheticArgs(ClipArgs):
    """The LAION aesthetic predictor, version 2."""

    checkpoint: str = Field(default=_OPENAI_CLIP, min_length=1)
    """CLIP: local folder in the transformers format, or a hub id `owner/name`."""
    revision: str | None = _OPENAI_CLIP_REVISION
    """Commit or tag of a hub checkpoint."""
    head: str = Field(min_length=1)
    """File `sac+logos+ava1-l14-linearMSE.pth` (docs/rewards.md says where it is published), or a folder or hub id that
    holds `head_file`."""
    head_revision: str | None = None
    """Commit or tag of a hub head."""
    head_file: str = Field(default="sac+logos+ava1-l14-linearMSE.pth", min_length=1)
    """Name of the file inside a folder or hub repository."""


IMAGEREWARD_FILES = ("ImageReward.pt", "med_config.json")
"""Weights, and the configuration of the text encoder."""


class ImagerewardArgs(ModelArgs):
    """ImageReward (Xu et al. 2023)."""

    belongs_to: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "checkpoint": ("revision", "tokenizer", "tokenizer_revision"),
        "tokenizer": ("tokenizer_revision",),
    }

    checkpoint: str = Field(default="THUDM/ImageReward", min_length=1)
    """Local folder or hub id with both IMAGEREWARD_FILES."""
    revision: str | None = "5736be03b2652728fb87788c9797b0570450ab72"
    """Commit or tag of a hub checkpoint."""
    tokenizer: str | None = "google-bert/bert-base-uncased"
    """Folder or hub id of BERT's tokenizer; None is the checkpoint's own folder."""
    tokenizer_revision: str | None = "86b5e0934494bd15c9632b12f734a8a67f723594"
    """Commit or tag of a hub tokenizer."""


class UnifiedrewardArgs(ScorerArgs):
    """UnifiedReward (Wang et al. 2025) behind an OpenAI-compatible server."""

    base_url: Address
    """Address up to and with the version, as OpenAI clients take it: `http://host:8000/v1`."""
    model: str = Field(default="UnifiedReward-7b-v1.5", min_length=1)
    """Name under which the server serves the model."""
    token_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the API key; the key itself never stands in a recipe."""
    question: str | None = None
    """Text with `{prompt}` where the caption goes; None is the one the public recipe asks with."""
    image_side: int | None = Field(default=512, ge=32)
    """Pixels: images are resized to this square as the public recipe does; None sends them as they are."""
    concurrency: int = Field(default=16, ge=1)
    """Requests under way at once."""
    timeout_s: float = Field(default=50.0, gt=0, le=3600)
    """For one image, retries included; the self-test is one image, and a dead server must be known within a minute. A
    pool's batch may take as many times as long as `concurrency` goes into it: its own timeout_s must leave room."""
    connect_timeout_s: float = Field(default=5.0, gt=0, le=60)
    """For one connection."""
    retries: int = Field(default=3, ge=0, le=10)
    """After connection errors, 408, 425, 429 and 5xx."""
    max_tokens: int = Field(default=1024, ge=1)
    """Longest answer; the score stands at its end."""

    @model_validator(mode="after")
    def _question_has_a_place_for_the_prompt(self) -> "UnifiedrewardArgs":
        if self.question is not None and "{prompt}" not in self.question:
            raise ValueError("question must contain {prompt}, the place of the caption")
        return self
