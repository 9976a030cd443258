"""PaddleOCR's two lives behind one reader, over stand-ins with the signatures and results of the published packages
(2.10 and 3.7): the packages are heavy, and their models come over the network. FAULTS 11, 12, 13."""

import sys
import types
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rewards.config import OcrArgs
from rewards.known import KNOWN_TEXT
from rewards.ocr import OcrScorer
from rewards.paddle_reader import PaddleOcrReader
from rewards.text_reader import Line

CORNERS = [[10.0, 20.0], [60.0, 18.0], [61.0, 40.0], [11.0, 42.0]]
IMAGE = np.zeros((50, 80, 3), np.uint8)
IMAGE[..., 0] = 200


class Paddle2:
    """As 2.x: any keyword, `ocr(img, cls=...)`, one list an image, None without text."""

    made: dict[str, Any]
    lines: Any = ((CORNERS, ("OPEN", 0.9)), (CORNERS, ("dim", 0.4)))

    def __init__(self, **keywords: Any) -> None:
        type(self).made = keywords

    def ocr(self, img: Any, det: bool = True, rec: bool = True, cls: bool = True) -> Any:
        assert isinstance(img, np.ndarray)
        assert not cls
        self.seen = img
        return [[list(line) for line in self.lines] if self.lines else None]


class Paddle3:
    """As 3.x: known keywords only, `predict(input)`, a list of mappings."""

    KNOWN = (
        "lang ocr_version device cpu_threads use_doc_orientation_classify use_doc_unwarping use_textline_orientation "
        "text_rec_score_thresh text_detection_model_dir text_recognition_model_dir"
    )
    made: dict[str, Any]
    result: Any = None

    def __init__(self, **keywords: Any) -> None:
        for name in keywords:
            if name not in self.KNOWN.split():
                raise ValueError(f"Unknown argument: {name}")
        type(self).made = keywords

    def predict(self, input: Any) -> Any:  # noqa: A002  # its own name
        self.seen = input
        if self.result is not None:
            return self.result
        polys = [np.array(CORNERS, dtype=np.int16)] * 2
        return [{"input_path": None, "rec_texts": ["OPEN", "dim"], "rec_scores": [0.9, 0.4], "rec_polys": polys}]


class Paddle3Later(Paddle3):
    """A later version that no longer takes cpu_threads."""

    KNOWN = Paddle3.KNOWN.replace(" cpu_threads", "")


class Paddle4(Paddle3):
    """One that takes none of ours."""

    KNOWN = "language"


def installed(monkeypatch: pytest.MonkeyPatch, engine: type, cuda: bool = False) -> None:
    package, paddle = types.ModuleType("paddleocr"), types.ModuleType("paddle")
    package.PaddleOCR = engine  # type: ignore[attr-defined]
    paddle.device = types.SimpleNamespace(is_compiled_with_cuda=lambda: cuda)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "paddleocr", package)
    monkeypatch.setitem(sys.modules, "paddle", paddle)


def args(**keywords: Any) -> OcrArgs:
    return OcrArgs(engine="paddleocr", **keywords)


@pytest.mark.parametrize("engine", [Paddle2, Paddle3, Paddle3Later])
def test_every_version_reads_the_same(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Box around slanted corners, lines below min_confidence dropped, BGR in."""
    installed(monkeypatch, engine)
    reader = PaddleOcrReader(args())
    assert reader(IMAGE) == [Line("OPEN", 10.0, 18.0, 61.0, 42.0)]
    assert reader._engine.seen[0, 0].tolist() == [0, 0, 200]
    assert [line.text for line in PaddleOcrReader(args(min_confidence=0.3))(IMAGE)] == ["OPEN", "dim"]


def test_no_text_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Paddle2)
    monkeypatch.setattr(Paddle2, "lines", ())
    assert PaddleOcrReader(args())(IMAGE) == []
    installed(monkeypatch, Paddle3)
    monkeypatch.setattr(Paddle3, "result", [{"rec_texts": [], "rec_scores": [], "rec_polys": np.zeros((0, 4, 2))}])
    assert PaddleOcrReader(args())(IMAGE) == []


def test_arguments_of_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12: show_log is an error in 3, use_gpu became device."""
    installed(monkeypatch, Paddle2)
    PaddleOcrReader(args(num_threads=3, min_confidence=0.7))
    assert Paddle2.made == {
        "lang": "en",
        "use_gpu": False,
        "use_angle_cls": False,
        "show_log": False,
        "drop_score": 0.7,
        "cpu_threads": 3,
    }
    installed(monkeypatch, Paddle3, cuda=True)
    PaddleOcrReader(args(device="cuda", engine_args={"lang": "ch", "text_detection_model_dir": "/models/det"}))
    assert Paddle3.made["device"] == "gpu"
    assert (Paddle3.made["lang"], Paddle3.made["text_detection_model_dir"]) == ("ch", "/models/det")
    assert not any(Paddle3.made[name] for name in Paddle3.made if name.startswith("use_"))
    installed(monkeypatch, Paddle3Later)
    PaddleOcrReader(args())
    assert "cpu_threads" not in Paddle3Later.made


def test_arguments_that_are_refused_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Paddle4)
    with pytest.raises(ValueError, match=r"PaddleOCR refuses its arguments \(lang, device, .*Unknown argument: lang"):
        PaddleOcrReader(args())
    installed(monkeypatch, Paddle3Later)
    with pytest.raises(ValueError, match="Unknown argument: cpu_threads"):
        PaddleOcrReader(args(engine_args={"cpu_threads": 2}))  # asked for by the user: not dropped in silence


def test_a_missing_or_broken_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12: with what to install."""
    monkeypatch.setitem(sys.modules, "paddleocr", None)
    with pytest.raises(ValueError, match="needs the package paddleocr, which is not installed: pip install paddleocr"):
        PaddleOcrReader(args())
    monkeypatch.setitem(sys.modules, "paddleocr", types.ModuleType("paddleocr"))
    with pytest.raises(ValueError, match="cannot be imported: cannot import name 'PaddleOCR'"):
        PaddleOcrReader(args())


def test_cuda_without_its_paddle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Paddle3)
    with pytest.raises(ValueError, match="needs paddlepaddle-gpu"):
        PaddleOcrReader(args(device="cuda"))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("text", "PaddleOCR 3 gave str"),
        ([], "PaddleOCR 3 gave list of 0"),
        ([[CORNERS, ("OPEN", 0.9)]], "PaddleOCR 3 gave list of 1, not one mapping"),
        ([{"texts": ["OPEN"]}], "without rec_texts, rec_scores, rec_polys; it has texts"),
        ([{"rec_texts": [b"OPEN"], "rec_scores": [1.0], "rec_polys": [CORNERS]}], "a line's text is bytes"),
    ],
)
def test_results_of_another_form_in_3(monkeypatch: pytest.MonkeyPatch, result: Any, message: str) -> None:
    """FAULTS 12."""
    installed(monkeypatch, Paddle3)
    monkeypatch.setattr(Paddle3, "result", result)
    with pytest.raises(TypeError, match=message):
        PaddleOcrReader(args())(IMAGE)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "PaddleOCR 2 gave NoneType"),
        ([[[CORNERS, "OPEN"]], None], "PaddleOCR 2 gave list of 2"),
        ([[[CORNERS, "OPEN"]]], "lines of another form"),
    ],
)
def test_results_of_another_form_in_2(monkeypatch: pytest.MonkeyPatch, output: Any, message: str) -> None:
    """FAULTS 12."""
    installed(monkeypatch, Paddle2)
    monkeypatch.setattr(Paddle2, "ocr", lambda self, image, cls: output)
    with pytest.raises(TypeError, match=message):
        PaddleOcrReader(args())(IMAGE)


def test_the_scorer_stands_on_it_and_tests_it_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same class, same rules; an engine that misreads the known text does not start."""
    installed(monkeypatch, Paddle2)
    with pytest.raises(RuntimeError, match=f"read 'OPEN' where '{KNOWN_TEXT}' is written"):
        OcrScorer(args())
    monkeypatch.setattr(Paddle2, "lines", ((CORNERS, (KNOWN_TEXT, 0.9)),))
    scorer = OcrScorer(args(match="strict"))
    images: NDArray[np.uint8] = np.zeros((2, 50, 80, 3), np.uint8)
    result = scorer(images, [f'says "{KNOWN_TEXT}"', 'says "MARX"'], [{}, {}])
    assert result.scores.tolist() == pytest.approx([1.0, 0.75])


def test_engine_args_belong_to_paddleocr() -> None:
    with pytest.raises(ValueError, match="engine_args belong to engine paddleocr, got lang for rapidocr"):
        OcrArgs(engine_args={"lang": "ch"})
