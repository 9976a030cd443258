"""The GenEval scorer over fake detectors: states, figures, and failures that stay where they belong."""

from typing import Any, Literal

import numpy as np
import pytest

from rewards.config import GenevalArgs
from rewards.contract import State
from rewards.geneval import GenevalFigures, GenevalScorer
from tests.unit.rewards.fakes import PixelDetector, RedClassifier, painted

FAKES = "tests.unit.rewards.fakes"
ONE_DOG: dict[str, Any] = {"tag": "single_object", "include": [{"class": "dog", "count": 1}]}
RED_DOG: dict[str, Any] = {"tag": "colors", "include": [{"class": "dog", "count": 1, "color": "red"}]}
BLUE_DOG: dict[str, Any] = {"tag": "colors", "include": [{"class": "dog", "count": 1, "color": "blue"}]}


def scorer(score: Literal["graded", "strict", "correct"] = "graded", clip: bool = False) -> GenevalScorer:
    args = GenevalArgs(detector=f"{FAKES}:PixelDetector", colors=f"{FAKES}:RedClassifier", score=score, clip=clip)
    return GenevalScorer(args)


def prompts(n: int) -> list[str]:
    return ["a photo"] * n


@pytest.mark.parametrize(
    ("score", "expected"),
    [("graded", [1.0, 0.0, -2.0, 0.0]), ("strict", [1.0, 0.0, 0.0, 0.0]), ("correct", [1.0, 1.0, 1.0, 0.0])],
)
def test_figures_by_name(score: Literal["graded", "strict", "correct"], expected: list[float]) -> None:
    """1, 2, 4 and 0 dogs where one was asked for."""
    images = painted(1, 2, 4, 0)
    assert scorer(score)(images, prompts(4), [ONE_DOG] * 4).scores.tolist() == expected


def test_clip_reaches_the_score() -> None:
    assert scorer(clip=True)(painted(4), prompts(1), [ONE_DOG]).scores.tolist() == [0.0]


def test_all_three_figures_from_one_detection() -> None:
    detector, classifier = PixelDetector(), RedClassifier()
    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), detector, classifier)
    classifier.calls = 0  # it has named a colour at the start
    outcomes = geneval.evaluate(painted(1, 2), prompts(2), [BLUE_DOG, RED_DOG])
    assert [o.figures for o in outcomes] == [GenevalFigures(0.5, False, False), GenevalFigures(0.0, False, True)]
    assert detector.batch_sizes == [2]
    assert classifier.calls == 2  # once per image, though three figures ask


def test_evaluation_reports_correct() -> None:
    result = scorer("graded").score_for_evaluation(painted(1, 2, 0), prompts(3), [ONE_DOG] * 3)
    assert result.scores.tolist() == [1.0, 1.0, 0.0]


def test_counting_needs_more_confidence() -> None:
    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector", detector_args={"confidence": 0.9}))
    counting = ONE_DOG | {"tag": "counting"}
    assert geneval(painted(1, 1), prompts(2), [ONE_DOG, counting]).scores.tolist() == [1.0, 0.0]


def test_states_stay_with_their_samples() -> None:
    """FAULTS 8, 9: missing include, broken metadata, broken detection and broken classifier, among healthy samples."""
    metadata: list[dict[str, Any]] = [
        ONE_DOG,
        {},
        {"include": [{"class": "dgo", "count": 1}]},
        {"include": [{"class": "dog", "count": -1}]},
        {"include": [{"class": "dog", "count": 1, "position": ["left of", 3]}]},
        ONE_DOG,
        RED_DOG,
        RED_DOG,
    ]
    images = painted(1, 1, 1, 1, 1, 254, 1, 1)
    images[6, 0, 0, 1] = 77  # the classifier raises on it
    result = scorer()(images, prompts(8), metadata)
    assert result.states.tolist() == [0, State.NOT_APPLICABLE, *[State.FAILED] * 5, 0]
    assert result.scores[[0, 7]].tolist() == [1.0, 1.0]
    assert np.isnan(result.scores[1:7]).all()
    assert "no include" in result.reasons[1]
    assert "include[0].class 'dgo'" in result.reasons[2]
    assert "got -1" in result.reasons[3]
    assert "below 0" in result.reasons[4]
    assert "nan" in result.reasons[5]
    assert result.reasons[6] == "RuntimeError: classifier broke"


def test_failed_metadata_does_not_change_the_detectors_batch() -> None:
    """FAULTS 8: neighbours keep their scores to the bit, so the detector must see the same batch."""
    detector = PixelDetector()
    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), detector)
    geneval(painted(1, 1, 1), prompts(3), [ONE_DOG, ONE_DOG, {}])
    geneval(painted(1, 1, 1), prompts(3), [ONE_DOG, {"include": [{"class": "dgo", "count": 1}]}, {}])
    assert detector.batch_sizes == [2, 2]


def test_nothing_to_detect_calls_no_detector() -> None:
    detector = PixelDetector()
    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), detector)
    result = geneval(painted(253, 253), prompts(2), [{}, {"include": "dog"}])
    assert result.states.tolist() == [State.NOT_APPLICABLE, State.FAILED]
    assert detector.batch_sizes == []


def test_a_detector_that_raises_raises() -> None:
    """It speaks for the whole batch; rewards.safe finds the sample."""
    with pytest.raises(RuntimeError, match="detector broke"):
        scorer()(painted(1, 253), prompts(2), [ONE_DOG] * 2)


def test_a_detector_that_answers_for_another_number() -> None:
    class Short(PixelDetector):
        def __call__(self, images_NHWC: Any) -> Any:
            return super().__call__(images_NHWC)[:-1]

    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), Short())
    with pytest.raises(ValueError, match="answered for 1 images, asked were 2"):
        geneval(painted(1, 1), prompts(2), [ONE_DOG] * 2)


def test_a_classifier_that_answers_for_another_number() -> None:
    class Short(RedClassifier):
        def __call__(self, image_HWC: Any, detections: Any) -> list[str]:
            return ["red"] * (len(detections) if image_HWC.shape[0] == 64 else 0)

    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), PixelDetector(), Short())
    result = geneval(painted(1), prompts(1), [RED_DOG])
    assert result.states.tolist() == [State.FAILED]
    assert "0 colours for 1 objects" in result.reasons[0]


def test_a_classifier_that_is_broken_does_not_start() -> None:
    """FAULTS 12: no self-test image need have an object whose colour would be asked for."""

    class Broken(RedClassifier):
        answer: Any = None

        def __call__(self, image_HWC: Any, detections: Any) -> list[str]:
            if self.answer is None:
                raise OSError("no weights")
            return self.answer

    for answer, message in ((["mauve"], r"named \['mauve'\] .* knows red, blue"), ([], r"named \[\] for one object")):
        Broken.answer = answer
        with pytest.raises(RuntimeError, match=message):
            GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), PixelDetector(), Broken())
    Broken.answer = None
    with pytest.raises(OSError, match="no weights"):
        GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"), PixelDetector(), Broken())


def test_no_classifier_fails_the_prompts_that_need_one() -> None:
    geneval = GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetector"))
    result = geneval(painted(1, 1), prompts(2), [RED_DOG, ONE_DOG])
    assert result.states.tolist() == [State.FAILED, State.SCORED]
    assert "no classifier" in result.reasons[0]


def test_what_the_paths_lead_to_is_checked() -> None:
    """FAULTS 12: a broken detector fails at the start, with its cause."""
    with pytest.raises(TypeError, match=r"NotAScorer does not keep rewards\.detection\.Detector"):
        GenevalScorer(GenevalArgs(detector=f"{FAKES}:NotAScorer"))
    with pytest.raises(ValueError, match="has no PixelDetecto; did you mean PixelDetector"):
        GenevalScorer(GenevalArgs(detector=f"{FAKES}:PixelDetecto"))
    with pytest.raises(ValueError, match="cannot be imported"):
        GenevalScorer(GenevalArgs(detector="no_such_package.detector:Detector"))


def test_batch_is_one_by_one() -> None:
    geneval = scorer()
    images = painted(0, 1, 2, 3)
    alone = [geneval(images[i : i + 1], prompts(1), [RED_DOG]).scores[0] for i in range(4)]
    assert geneval(images, prompts(4), [RED_DOG] * 4).scores.tolist() == alone
