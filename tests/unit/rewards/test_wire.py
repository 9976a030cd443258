"""The wire format of the HTTP scorer: exact both ways, and nothing gets through that is not of it."""

import io
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from rewards.contract import RewardResult, State
from rewards.results import Cell, collect
from rewards.wire import (
    decode_answer,
    decode_info,
    decode_npy,
    decode_pngs,
    decode_question,
    encode_answer,
    encode_request,
)

MIB = 2**20
GOOD = {"protocol": 1, "states": ["scored"], "scores": [0.5], "reasons": [""]}


def noise(n: int = 3, height: int = 5, width: int = 7) -> NDArray[np.uint8]:
    return np.random.default_rng(n).integers(0, 256, (n, height, width, 3), np.uint8)


def npy(array: NDArray[Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def png_of_16_bits() -> bytes:
    """One black pixel with 16 bits per channel; Pillow writes none."""
    header = (1).to_bytes(4) * 2 + bytes([16, 2, 0, 0, 0])
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(7))), (b"IEND", b"")]
    parts = [len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4) for kind, body in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def answer(**changes: Any) -> bytes:
    return json.dumps({key: value for key, value in {**GOOD, **changes}.items() if value is not ...}).encode()


def contents(form: Any, images: NDArray[np.uint8], **options: Any) -> tuple[bytes, list[bytes]]:
    options = {"prompts": ["a"] * len(images), "metadata": [{}] * len(images), "evaluation": False} | options
    [(name, (file, text, kind)), *files] = encode_request(images, form=form, **options)
    assert (name, file, kind) == ("request", None, "application/json")
    return text, [content for _, (_, content, _) in files]


# -- images ------------------------------------------------------------------------------------------------------------


def test_npy_is_numpys_own_format_and_exact() -> None:
    _, [data] = contents("npy", noise())
    np.testing.assert_array_equal(np.load(io.BytesIO(data), allow_pickle=False), noise())
    decoded = decode_npy(data, MIB)
    np.testing.assert_array_equal(decoded, noise())
    assert decoded.dtype == np.uint8


def test_a_slice_of_a_larger_array_travels_as_itself() -> None:
    strided = noise(6)[::2, :, ::-1]
    _, [data] = contents("npy", strided)
    np.testing.assert_array_equal(decode_npy(data, MIB), strided)


def test_png_is_exact() -> None:
    _, files = contents("png", noise())
    assert [Image.open(io.BytesIO(data)).size for data in files] == [(7, 5)] * 3
    np.testing.assert_array_equal(decode_pngs(files, MIB), noise())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not in numpy's .npy format"),
        (b"<html>", "not in numpy's .npy format"),
        (npy(noise())[:40], "not in numpy's .npy format"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"[" * 16, "not in numpy's .npy format"),
        (b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, "not in numpy's .npy format"),
        (npy(np.array([{}], dtype=object), allow_pickle=True), "must be uint8"),
        (npy(noise().astype(np.float32) / 255), r"got float32 \[3, 5, 7, 3\]"),
        (npy(noise().transpose(0, 3, 1, 2).copy()), r"got uint8 \[3, 3, 5, 7\]"),
        (npy(noise()[0]), r"got uint8 \[5, 7, 3\]"),
        (npy(noise()[:0]), r"got uint8 \[0, 5, 7, 3\]"),
        (npy(np.asfortranarray(noise())), "in Fortran order"),
        (npy(noise())[:-1], "have 315 bytes, got 314"),
        (npy(noise()) + b"x", "have 315 bytes, got 316"),
    ],
)
def test_what_is_no_batch_of_images_in_npy(data: bytes, message: str) -> None:
    """FAULTS 13: pickles above all are not even looked at."""
    with pytest.raises(ValueError, match=message):
        decode_npy(data, MIB)


def test_a_header_that_claims_a_terabyte_allocates_nothing() -> None:
    claim = b"{'descr': '|u1', 'fortran_order': False, 'shape': (333333, 1000, 1000, 3), }"
    data = b"\x93NUMPY\x01\x00" + (len(claim) + 1).to_bytes(2, "little") + claim + b"\n" + bytes(100)
    with pytest.raises(ValueError, match="have 999999000000 bytes, got 100"):
        decode_npy(data, 10**13)


def test_more_pixels_than_the_limit() -> None:
    with pytest.raises(ValueError, match=r"have 315 bytes, got 315 \(at most 314\)"):
        decode_npy(npy(noise()), 314)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no images"),
        ([b"<html>"], "image 0 cannot be taken as PNG"),
        ([png(Image.new("RGB", (4, 4))), png(Image.new("RGB", (4, 4)))[:-30]], "image 1 cannot be taken"),
        ([png(Image.new("RGBA", (4, 4)))], "mode RGBA"),
        ([png_of_16_bits()], "mode RGB of 16 bits"),
        ([png(Image.new("L", (4, 4)))], "mode L"),
        ([png(Image.new("P", (4, 4)))], "mode P"),
        ([png(Image.new("RGB", (4, 4))), png(Image.new("RGB", (4, 5)))], r"image 1 .*\[5, 4, 3\] where the first has"),
        ([png(Image.new("RGB", (700, 700)))], r"at most 1048576 bytes"),
        ([png(Image.new("RGB", (400, 400)))] * 3, r"\[3, 400, 400, 3\] in all"),
    ],
)
def test_what_is_no_batch_of_pngs(files: list[bytes], message: str) -> None:
    """A few kilobytes may claim a picture of gigabytes; the limit is of what they decode to."""
    with pytest.raises(ValueError, match=message):
        decode_pngs(files, MIB)


def test_other_picture_formats_are_not_tried() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, format="BMP")
    with pytest.raises(ValueError, match="cannot be taken as PNG"):
        decode_pngs([buffer.getvalue()], MIB)


# -- questions ---------------------------------------------------------------------------------------------------------


def test_prompts_metadata_and_the_flag_arrive_as_they_were() -> None:
    prompts = ['a sign "Ω"', "two\nlines", ""]
    metadata = [{"include": [{"class": "dog", "count": 2}]}, {}, {"text": "ä", "x": 0.1, "none": None}]
    text, _ = contents("npy", noise(), prompts=prompts, metadata=metadata, evaluation=True)
    question = decode_question(text)
    assert question.prompts == prompts
    assert question.metadata == metadata
    assert question.evaluation is True
    assert json.loads(text)["protocol"] == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prompts": ["a", "\ud800", "b"]}, "surrogates"),
        ({"metadata": [{}, {"x": float("nan")}, {}]}, "JSON compliant"),
        ({"metadata": [{}, {"x": {1, 2}}, {}]}, "not JSON serializable"),
    ],
)
def test_a_sample_that_cannot_be_sent_raises(options: dict[str, Any], error: str) -> None:
    """FAULTS 9: raised, not failed, so that rewards.safe looks for the sample at fault."""
    with pytest.raises((ValueError, TypeError), match=error):
        contents("npy", noise(), **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": 2}, "speaks protocol 2, this side speaks 1"),
        ({"protocol": True}, "speaks protocol True"),
        ({"protocol": ...}, "speaks protocol None"),
        ({"prompts": ...}, "prompts: Field required"),
        ({"prompts": []}, "prompts: List should have at least 1 item"),
        ({"prompts": [1]}, r"prompts\.0: Input should be a valid string"),
        ({"prompts": "ab"}, "prompts: Input should be a valid list"),
        ({"metadata": [[]]}, r"metadata\.0: Input should be a valid dictionary"),
        ({"metadata": [{}, {}]}, "1 prompts but 2 metadata"),
        ({"evaluation": 1}, "evaluation: Input should be a valid boolean"),
    ],
)
def test_a_wrong_question(change: dict[str, Any], message: str) -> None:
    question = {"protocol": 1, "prompts": ["a"], "metadata": [{}]} | change
    with pytest.raises(ValueError, match=message):
        decode_question(json.dumps({k: v for k, v in question.items() if v is not ...}).encode())


def test_a_later_version_may_add_keys() -> None:
    assert decode_question(b'{"protocol": 1, "prompts": ["a"], "metadata": [{}], "more": 1}').prompts == ["a"]


# -- answers -----------------------------------------------------------------------------------------------------------

_CELLS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(Cell.scored),
    st.text(max_size=5).map(Cell.not_applicable),
    st.text(min_size=1, max_size=5).map(Cell.failed),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(_CELLS, min_size=1, max_size=8))
def test_cells_survive_the_way_to_the_bit(cells: list[Cell]) -> None:
    result = collect(cells)
    again = decode_answer(encode_answer(result), len(cells))
    assert again.scores.tobytes() == result.scores.tobytes()
    assert again.states.tobytes() == result.states.tobytes()
    assert again.reasons == result.reasons


def cell_of(body: bytes) -> RewardResult:
    return decode_answer(body, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the answer is not JSON"),
        (b"<html><body>502 Bad Gateway", "the answer is not JSON .*<html><body>502 Bad Gateway"),
        (answer()[:-5], "the answer is not JSON"),
        (b"\xff\xfe", "the answer is not JSON"),
        (b"[" * 100_000, "the answer is not JSON"),
        (b"[0.5]", "not a JSON object"),
        (b"0.5", "not a JSON object"),
        (b"{}", "speaks protocol None"),
        (answer(protocol=2), "speaks protocol 2, this side speaks 1"),
        (answer(protocol="1"), "speaks protocol '1'"),
        (answer(scores=...), "scores: Field required"),
        (answer(scores=["0.5"]), r"scores\.0: Input should be a valid number"),
        (answer(scores=[True]), r"scores\.0: Input should be a valid number"),
        (answer(scores=0.5), "scores: Input should be a valid list"),
        (answer(states=["ok"]), r"states\.0: Input should be 'scored', 'not_applicable' or 'failed'"),
        (answer(states=[0]), r"states\.0"),
        (answer(reasons=[None]), r"reasons\.0"),
        (answer(scores=[0.5, 0.5]), r"\(1, 2, 1\) states, scores and reasons for 1 samples"),
        (answer(scores=[], states=[], reasons=[]), r"\(0, 0, 0\) states"),
    ],
)
def test_a_wrong_answer_is_no_number(body: bytes, message: str) -> None:
    """FAULTS 8: all of it is refused, in one line."""
    with pytest.raises(ValueError, match=message) as caught:
        cell_of(body)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (answer(scores=[float("nan")]), "the scorer gave nan"),
        (answer(scores=[float("inf")]), "the scorer gave inf"),
        (answer(scores=[1e39]), r"the scorer gave 1e\+39, which is not a finite float32"),
        (answer(scores=[None]), "called it scored and gave no score"),
        (answer(states=["failed"]), "the server gave no reason"),
        (answer(states=["failed"], reasons=["no GPU"]), "no GPU"),
    ],
)
def test_a_cell_that_makes_no_sense_fails_alone(body: bytes, reason: str) -> None:
    two = json.loads(body)
    two = {key: value + GOOD[key] if isinstance(value, list) else value for key, value in two.items()}  # type: ignore[operator]
    result = decode_answer(json.dumps(two).encode(), 2)
    assert result.states.tolist() == [State.FAILED, State.SCORED]
    assert np.isnan(result.scores[0])
    assert result.scores[1] == 0.5
    assert re.search(reason, result.reasons[0])


def test_a_number_beside_not_applicable_is_dropped() -> None:
    result = cell_of(answer(states=["not_applicable"], reasons=["photos only"]))
    assert result.states.tolist() == [State.NOT_APPLICABLE]
    assert np.isnan(result.scores[0])
    assert result.reasons == ("photos only",)


def test_whole_numbers_are_scores_too() -> None:
    assert cell_of(answer(scores=[1])).scores.tolist() == [1.0]


# -- info --------------------------------------------------------------------------------------------------------------


def test_the_least_that_a_server_says_of_itself() -> None:
    info = decode_info(b'{"protocol": 1, "reward": "ocr"}')
    assert (info.reward, info.images, info.max_request_bytes, info.self_test_metadata) == ("ocr", ["npy"], None, {})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"reward": "ocr"}', "/v1/info speaks protocol None"),
        (b'{"protocol": 1}', "/v1/info: reward: Field required"),
        (b'{"protocol": 1, "reward": "x", "max_request_bytes": 0}', "/v1/info: max_request_bytes"),
        (b"<html>", "/v1/info is not JSON"),
    ],
)
def test_wrong_info(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_info(body)
