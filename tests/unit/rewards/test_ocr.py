"""The OCR scorer over the real reader, and over broken ones."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from rewards.config import OcrArgs
from rewards.contract import State
from rewards.known import KNOWN_TEXT, known_image
from rewards.ocr import OcrScorer
from rewards.text_reader import Line, RapidOcrReader, reading_order


def drawn(texts: Sequence[tuple[str, int, int]], side: int = 256, size: int = 40) -> NDArray[np.uint8]:
    """White image with texts at (left, middle) positions."""
    picture = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(picture)
    for text, left, middle in texts:
        draw.text((left, middle), text, fill="black", font=ImageFont.load_default(size), anchor="lm")
    return np.asarray(picture)


def sign(text: str) -> NDArray[np.uint8]:
    return drawn([(text, 20, 128)])


def says(text: str) -> str:
    return f'a sign that says "{text}"'


class FakeReader:
    """Reads the value of the first pixel as that many letters; raises or answers what it is told to."""

    def __init__(self, raises_at: int | None = None) -> None:
        self.raises_at = raises_at
        self.inside = 0
        self.most_inside = 0

    def __call__(self, image_HWC: NDArray[np.uint8]) -> list[Line]:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(0.001)
        self.inside -= 1
        value = int(image_HWC[0, 0, 0])
        if value == self.raises_at:
            raise OSError("cannot decode")
        text = KNOWN_TEXT if value == 255 else "x" * value
        return [Line(text, 0, 0, 1, 1)]


def test_reads_and_matches(ocr_strict: OcrScorer) -> None:
    images = np.stack([sign("OPEN"), sign("OPEN"), sign("BANANA"), np.full((256, 256, 3), 255, np.uint8)])
    result = ocr_strict(images, [says("open"), says("OPEM"), says("N"), says("OPEN")], [{}] * 4)
    assert result.states.tolist() == [State.SCORED] * 4
    assert result.scores.tolist() == pytest.approx([1.0, 0.75, 1 / 6, 0.0])


def test_one_prompt_without_target_leaves_the_others(ocr_strict: OcrScorer) -> None:
    """FAULTS 9, 8: not applicable is its own state, and the neighbours' scores are the same to the bit."""
    images = np.stack([sign("OPEN"), sign("A1B2"), sign("HELLO")])
    prompts = [says("OPEN"), says("A1B3"), says("HELP")]
    with_all = ocr_strict(images, prompts, [{}] * 3)
    result = ocr_strict(images, [prompts[0], 'a lone " quote', prompts[2]], [{}] * 3)
    assert result.states.tolist() == [State.SCORED, State.NOT_APPLICABLE, State.SCORED]
    assert np.isnan(result.scores[1])
    assert result.scores[[0, 2]].tobytes() == with_all.scores[[0, 2]].tobytes()


def test_evaluation_is_strict_whatever_training_uses() -> None:
    """FAULTS 10: found anywhere gives full marks in training if asked for, never in a report."""
    scorer = OcrScorer(OcrArgs(match="published"))
    images = sign("BANANA")[None]
    assert scorer(images, [says("N")], [{}]).scores.tolist() == [1.0]
    assert scorer.score_for_evaluation(images, [says("N")], [{}]).scores.tolist() == pytest.approx([1 / 6])


def test_lines_are_joined_in_reading_order(ocr_strict: OcrScorer) -> None:
    image = drawn([("FOUR", 20, 210), ("TWO", 140, 62), ("ONE", 20, 60), ("THREE", 20, 130)])
    assert ocr_strict.read(image) == "ONETWOTHREEFOUR"


def test_small_images_are_enlarged() -> None:
    """64 pixels, the tiny world's size, with a 5-letter sign."""
    scorer = OcrScorer(OcrArgs(match="strict", upsample=256))
    image = drawn([("K7QX2", 4, 32)], side=64, size=18)
    assert scorer(image[None], [says("K7QX2")], [{}]).scores.tolist() == [1.0]


def test_colour_order_reaches_the_engine(ocr_strict: OcrScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 13: the engine takes BGR."""
    seen: list[NDArray[np.uint8]] = []
    reader = RapidOcrReader(OcrArgs())
    engine = reader._engine

    def spy(image: NDArray[np.uint8]) -> object:
        seen.append(image)
        return engine(image)

    monkeypatch.setattr(reader, "_engine", spy)
    image = np.zeros((64, 64, 3), np.uint8)
    image[..., 0] = 255
    reader(image)
    assert seen[0][0, 0].tolist() == [0, 0, 255]


def test_one_image_that_cannot_be_read_fails_alone() -> None:
    """FAULTS 8: failed with its cause, never 0, and the rest as without it."""
    images = np.stack([np.full((8, 8, 3), value, np.uint8) for value in (1, 2, 3)])
    prompts = [says("x"), says("xx"), says("xx")]
    result = OcrScorer(OcrArgs(match="strict"), FakeReader(raises_at=2))(images, prompts, [{}] * 3)
    assert result.states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert result.reasons[1] == "OSError: cannot decode"
    assert np.isnan(result.scores[1])
    healthy = OcrScorer(OcrArgs(match="strict"), FakeReader())(images, prompts, [{}] * 3)
    assert result.scores[[0, 2]].tobytes() == healthy.scores[[0, 2]].tobytes()
    assert healthy.scores.tolist() == pytest.approx([1.0, 1.0, 2 / 3])


def test_wrong_target_in_metadata_fails_alone() -> None:
    images = np.ones((2, 8, 8, 3), np.uint8)
    result = OcrScorer(OcrArgs(), FakeReader())(images, [says("x")] * 2, [{"text": 3}, {}])
    assert result.states.tolist() == [State.FAILED, State.SCORED]
    assert "must be a string" in result.reasons[0]


def test_threads_get_their_own_images() -> None:
    """FAULTS 11: one call at a time inside the reader, and result i belongs to image i."""
    reader = FakeReader()
    scorer = OcrScorer(OcrArgs(), reader)
    got: dict[int, str] = {}

    def work(value: int) -> None:
        got[value] = scorer.read(np.full((8, 8, 3), value, np.uint8))

    threads = [threading.Thread(target=work, args=(value,)) for value in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {value: "x" * value for value in range(20)}
    assert reader.most_inside == 1


def test_real_reader_under_load(ocr_strict: OcrScorer) -> None:
    """FAULTS 11."""
    texts = ["AB12", "CD34", "EF56", "GH78"]
    got: dict[str, str] = {}

    def work(text: str) -> None:
        for _ in range(2):
            got[text] = ocr_strict.read(sign(text))

    threads = [threading.Thread(target=work, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {text: text for text in texts}


def test_an_engine_that_misreads_does_not_start() -> None:
    """FAULTS 12: a broken engine fails at the start, with its cause."""

    def blind(image_HWC: NDArray[np.uint8]) -> list[Line]:
        return []

    with pytest.raises(RuntimeError, match="read '' where 'MARS' is written"):
        OcrScorer(OcrArgs(), blind)


def test_an_engine_with_another_return_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12."""
    reader = RapidOcrReader(OcrArgs())
    monkeypatch.setattr(reader, "_engine", lambda image: ([["text"]], 0.1))
    with pytest.raises(TypeError, match="RapidOCR gave tuple"):
        reader(known_image(64))


def test_cuda_without_its_onnxruntime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ValueError, match="needs onnxruntime-gpu"):
        RapidOcrReader(OcrArgs(device="cuda"))


def test_num_threads_reach_onnxruntime() -> None:
    reader = RapidOcrReader(OcrArgs(num_threads=2))
    assert reader(known_image(128))[0].text == KNOWN_TEXT
    for part in (reader._engine.text_det, reader._engine.text_rec):
        assert part.session.session.get_session_options().intra_op_num_threads == 2


def test_reading_order_by_hand() -> None:
    """Rows are told by the first line's height, not by a fixed number of pixels: at 4 pixels as at 400."""
    for scale in (1.0, 100.0):
        lines = [
            Line("d", 0 * scale, 4 * scale, 9 * scale, 8 * scale),
            Line("b", 5 * scale, 0.5 * scale, 9 * scale, 4.5 * scale),
            Line("a", 0 * scale, 1 * scale, 4 * scale, 5 * scale),
            Line("c", 10 * scale, 1 * scale, 14 * scale, 4 * scale),
        ]
        assert "".join(line.text for line in reading_order(lines)) == "abcd"
    assert reading_order([]) == []
