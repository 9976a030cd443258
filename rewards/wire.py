"""What travels between the HTTP scorer and its server, both ways (docs/http_rewards.md). No network in here.

A request is multipart/form-data: a field `request` with JSON, and the images, either one file `images` in numpy's
format or one PNG file `image` for each sample, in order. An answer is JSON with a state, score and reason for each.
Whatever comes in is checked before anything is allocated for it, and nothing is ever unpickled.

Letters: N samples of H × W pixels.
"""

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewards.contract import Metadata, RewardResult, State
from rewards.images import check_images
from rewards.results import Cell, collect

PROTOCOL = 1
"""Version of the contract; both sides refuse another one."""

_PNG_DEPTH_AT, _PNG_DEPTH = 24, 8
"""Byte of a PNG file that holds the bits per channel: signature, the first chunk's length and type, width, height."""

REQUEST_PART, NPY_PART, PNG_PART = "request", "images", "image"

Part = tuple[str, tuple[str | None, bytes, str]]
"""(name, (file name, content, content type)) of one part of a form."""

_STATES: Mapping[str, State] = {"scored": State.SCORED, "not_applicable": State.NOT_APPLICABLE, "failed": State.FAILED}
_NAMES = {state: name for name, state in _STATES.items()}


class _Message(BaseModel):
    """Types are exact ("0.5" and true are no numbers); unknown keys are left to later versions."""

    model_config = ConfigDict(frozen=True, strict=True)


_M = TypeVar("_M", bound=_Message)


class Question(_Message):
    """The JSON part of a request: N samples, all of which the reward applies to."""

    prompts: list[str] = Field(min_length=1)
    metadata: list[dict[str, Any]]
    evaluation: bool = False
    """Asks for the reported figure in place of the training score."""


class Info(_Message):
    """What a server says of itself."""

    reward: str
    """Name of what it serves."""
    images: list[str] = ["npy"]
    """Which of `npy` and `png` it takes."""
    max_request_bytes: int | None = Field(default=None, gt=0)
    """Of a request's body, and of its images once decoded; None is no limit."""
    self_test_metadata: dict[str, Any] = {}
    """Metadata with which it can score any image; rewards like GenEval have no score without."""


class _Answer(_Message):
    states: list[Literal["scored", "not_applicable", "failed"]]
    scores: list[float | None]
    reasons: list[str]


# -- requests ----------------------------------------------------------------------------------------------------------


def encode_request(
    images_NHWC: NDArray[np.uint8],
    prompts: Sequence[str],
    metadata: Sequence[Metadata],
    evaluation: bool,
    form: Literal["npy", "png"],
) -> list[Part]:
    """The parts of one request for N samples (uint8 [N, H, W, 3]).

    Raises:
        ValueError, TypeError: a prompt that is no Unicode text, or metadata that JSON cannot hold.
    """
    question = {"protocol": PROTOCOL, "prompts": list(prompts), "metadata": list(map(dict, metadata))}
    text = json.dumps(question | {"evaluation": evaluation}, ensure_ascii=False, allow_nan=False)
    head: Part = (REQUEST_PART, (None, text.encode(), "application/json"))
    if form == "npy":
        return [head, (NPY_PART, ("images.npy", _npy(images_NHWC), "application/x-npy"))]
    return [head, *((PNG_PART, (f"{i}.png", _png(image), "image/png")) for i, image in enumerate(images_NHWC))]


def _npy(images_NHWC: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(images_NHWC), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _png(image_HWC: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    # The lowest level is several times faster than the default, and a few percent larger.
    Image.fromarray(image_HWC).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def decode_question(body: bytes) -> Question:
    """The JSON part of a request.

    Raises:
        ValueError: no JSON, another protocol, or samples that do not fit together; one line.
    """
    question = _validated(Question, _object(body, "the request"), "the request")
    if len(question.prompts) != len(question.metadata):
        raise ValueError(f"{len(question.prompts)} prompts but {len(question.metadata)} metadata")
    return question


def decode_npy(data: bytes, max_bytes: int) -> NDArray[np.uint8]:
    """Images (uint8 [N, H, W, 3], read only) of an .npy file, without a copy.

    Raises:
        ValueError: another format, dtype or shape, or another number of bytes than its header says.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = readers[version](stream)
    # A hostile header makes numpy's reader raise whatever its parsing meets.
    except Exception as error:
        raise ValueError(f"images are not in numpy's .npy format: {type(error).__name__}: {error}") from error
    if dtype != np.uint8 or fortran or len(shape) != 4 or shape[-1] != 3 or min(shape) < 1:
        order = "Fortran" if fortran else "C"
        raise ValueError(f"images must be uint8 [N, H, W, 3] in C order, got {dtype} {list(shape)} in {order} order")
    size, held = math.prod(shape), len(data) - stream.tell()
    if size != held or size > max_bytes:
        raise ValueError(f"images of shape {list(shape)} have {size} bytes, got {held} (at most {max_bytes})")
    return np.frombuffer(data, np.uint8, offset=stream.tell()).reshape(shape)


def decode_pngs(files: Sequence[bytes], max_bytes: int) -> NDArray[np.uint8]:
    """Images (uint8 [N, H, W, 3]) of N RGB PNG files of one size.

    Raises:
        ValueError: a file that is no such PNG, files of several sizes, or more than max_bytes once decoded.
    """
    images_NHWC: NDArray[np.uint8] | None = None
    for index, data in enumerate(files):
        try:
            with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
                # Until here only the header is read: a small file may claim a huge picture.
                shape = (len(files), picture.height, picture.width, 3)
                depth = data[_PNG_DEPTH_AT]  # Pillow calls 16 bits RGB too, and drops the lower ones
                if picture.mode != "RGB" or depth != _PNG_DEPTH or math.prod(shape) > max_bytes:
                    raise ValueError(
                        f"mode {picture.mode} of {depth} bits, {list(shape)} in all; "
                        f"wants RGB of {_PNG_DEPTH} bits, at most {max_bytes} bytes"
                    )
                if images_NHWC is None:
                    images_NHWC = np.empty(shape, np.uint8)
                if images_NHWC.shape != shape:
                    raise ValueError(f"{list(shape[1:])} where the first has {list(images_NHWC.shape[1:])}")
                images_NHWC[index] = np.asarray(picture)
        except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ValueError(f"image {index} cannot be taken as PNG: {error}") from error
    if images_NHWC is None:
        raise ValueError("no images")
    return check_images(images_NHWC)


# -- answers -----------------------------------------------------------------------------------------------------------


def encode_answer(result: RewardResult) -> bytes:
    """N cells as JSON. A float32 score survives the way through decimal text to the bit; JSON has no NaN."""
    scored = result.states == State.SCORED
    answer = {
        "protocol": PROTOCOL,
        "states": [_NAMES[State(int(state))] for state in result.states],
        "scores": [float(score) if ok else None for score, ok in zip(result.scores, scored, strict=True)],
        "reasons": list(result.reasons),
    }
    return json.dumps(answer, allow_nan=False).encode()


def decode_answer(body: bytes, num_asked: int) -> RewardResult:
    """The cells of an answer. A single cell that makes no sense (scored without a finite score) fails alone.

    Raises:
        ValueError: no JSON, another protocol, a missing key, another type or another number of cells; one line.
    """
    answer = _validated(_Answer, _object(body, "the answer"), "the answer")
    lengths = (len(answer.states), len(answer.scores), len(answer.reasons))
    if set(lengths) != {num_asked}:
        raise ValueError(f"the answer has {lengths} states, scores and reasons for {num_asked} samples")
    return collect([_cell(*cell) for cell in zip(answer.states, answer.scores, answer.reasons, strict=True)])


def decode_info(body: bytes) -> Info:
    """What a server says of itself.

    Raises:
        ValueError: no JSON, another protocol, or a missing key; one line.
    """
    return _validated(Info, _object(body, "/v1/info"), "/v1/info")


def _cell(name: str, score: float | None, reason: str) -> Cell:
    match _STATES[name]:
        case State.SCORED:
            return Cell.failed("the server called it scored and gave no score") if score is None else Cell.scored(score)
        case State.NOT_APPLICABLE:
            return Cell.not_applicable(reason)
        case State.FAILED:
            return Cell.failed(reason or "the server gave no reason")


# -- JSON --------------------------------------------------------------------------------------------------------------


def _object(body: bytes, what: str) -> dict[str, Any]:
    """A JSON object of this protocol. The version is looked at first: of another one nothing else is known."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON ({type(error).__name__}: {error}): {excerpt(body)}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not a JSON object: {excerpt(body)}")
    if data.get("protocol") != PROTOCOL or isinstance(data["protocol"], bool):
        raise ValueError(f"{what} speaks protocol {data.get('protocol')!r}, this side speaks {PROTOCOL}")
    return data


def _validated(model: type[_M], data: dict[str, Any], what: str) -> _M:
    try:
        return model.model_validate(data)
    except (ValidationError, OverflowError) as error:
        if not isinstance(error, ValidationError):
            raise ValueError(f"{what}: {error}") from error
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{what}: {where}: {first['msg']} ({error.error_count()} errors in all)") from error


def excerpt(body: bytes, length: int = 160) -> str:
    """The beginning of a body for an error message, on one line."""
    text = " ".join(body[: 4 * length].decode("utf-8", "replace").split())
    return repr(text if len(text) <= length else text[:length] + "...")
