"""GenEval reward: are the objects that the prompt names in the image, in number, colour and place?

The rules are in rewards.geneval_rules, the models behind the protocols of rewards.detection.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewards import geneval_rules as rules
from rewards.config import ARGS_OF_GENEVAL_PART, GenevalArgs
from rewards.contract import Metadata, RewardResult, State
from rewards.detection import ColorClassifier, Detection, Detector
from rewards.dotted import load_dotted
from rewards.geneval_metadata import parse_spec
from rewards.images import check_batch
from rewards.known import known_image
from rewards.results import Cell, collect, describe

Figure = Literal["graded", "strict", "correct"]


@dataclass(frozen=True)
class GenevalFigures:
    """The three figures of one image."""

    graded: float
    """Mean over parts, at most 1; what training sees by default."""
    strict: bool
    """Exactly the objects asked for."""
    correct: bool
    """GenEval's own verdict; what tables report."""


@dataclass(frozen=True)
class GenevalOutcome:
    """What became of one sample: figures if it was scored, a reason if not."""

    state: State
    figures: GenevalFigures | None
    reason: str

    def cell(self, figure: Figure) -> Cell:
        """One of the figures as a reward cell (true is 1, false 0)."""
        if self.figures is None:
            return Cell(self.state, math.nan, self.reason)
        return Cell.scored(float(getattr(self.figures, figure)))


class GenevalScorer:
    """GenEval over any detector and colour classifier.

    A prompt without `include` is not applicable; metadata that cannot be scored as written has failed, alone.
    """

    def __init__(
        self, args: GenevalArgs, detector: Detector | None = None, colors: ColorClassifier | None = None
    ) -> None:
        """Build detector and colour classifier from the dotted paths of args, unless they are given.

        The classifier names one colour here: no image of a self-test need have an object that it would be asked about.

        Raises:
            ValueError: a path leads nowhere.
            TypeError: what stands there does not keep the protocol.
            RuntimeError: the classifier named none of its colours.
            Exception: whatever the classifier itself raises.
        """
        self.args = args
        self._detector: Detector = detector or _build(args.detector, args.detector_args, Detector)
        self._classifier: ColorClassifier | None = colors
        if colors is None and args.colors is not None:
            self._classifier = _build(args.colors, args.colors_args, ColorClassifier)
        if self._classifier is not None:
            _try_colors(self._classifier, self._detector.classes[0])
        self._lock = threading.Lock()

    @property
    def score_range(self) -> tuple[float, float]:
        """Least and greatest training score; the published graded score has no least one."""
        bounded = self.args.clip or self.args.score != "graded"
        return (0.0 if bounded else -math.inf, 1.0)

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) by the figure that args.score names.

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it, or a detector that answers for
                another number of images.
        """
        outcomes = self.evaluate(images_NHWC, prompts, metadata)
        return collect([outcome.cell(self.args.score) for outcome in outcomes])

    def score_for_evaluation(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """As a call, but the figure that `args.report` names, 0 or 1."""
        outcomes = self.evaluate(images_NHWC, prompts, metadata)
        return collect([outcome.cell(self.args.report) for outcome in outcomes])

    def evaluate(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> list[GenevalOutcome]:
        """All three figures of N images (uint8 [N, H, W, 3]) from one detection; errors as in a call."""
        images = check_batch(images_NHWC, prompts, metadata)
        parsed = [self._parse(item) for item in metadata]
        # Samples whose metadata failed are detected too: the detector's batch, and with it the last bit of the other
        # samples' confidences, then does not depend on them.
        asked = [i for i, item in enumerate(parsed) if not _is_not_applicable(item)]
        found: dict[int, list[Detection]] = {}
        if any(isinstance(item, rules.Spec) for item in parsed):
            with self._lock:
                found = dict(zip(asked, self._detect(images[asked]), strict=True))
        return [
            item if isinstance(item, GenevalOutcome) else self._judge(images[i], item, found[i])
            for i, item in enumerate(parsed)
        ]

    def self_test_metadata(self) -> Metadata:
        """Metadata that this scorer can score on any image: one object of the detector's first class."""
        return {"tag": "single_object", "include": [{"class": self._detector.classes[0], "count": 1}]}

    def _parse(self, metadata: Metadata) -> rules.Spec | GenevalOutcome:
        colors = () if self._classifier is None else self._classifier.colors
        try:
            spec = parse_spec(metadata, self._detector.classes, colors)
        except ValueError as error:
            return GenevalOutcome(State.FAILED, None, f"bad GenEval metadata: {error}")
        if spec is None:
            return GenevalOutcome(State.NOT_APPLICABLE, None, "the prompt's metadata has no include")
        return spec

    def _detect(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        found = self._detector(images_NHWC)
        if len(found) != len(images_NHWC):
            raise ValueError(f"the detector answered for {len(found)} images, asked were {len(images_NHWC)}")
        return found

    def _judge(self, image_HWC: NDArray[np.uint8], spec: rules.Spec, found: Sequence[Detection]) -> GenevalOutcome:
        colors = _ColorsOfImage(self._classifier, image_HWC)
        try:
            _check_detections(found)
            objects = rules.keep(found, spec.tag)
            figures = GenevalFigures(
                graded=rules.graded(spec, objects, colors, self.args.clip),
                strict=rules.strict(spec, objects, colors),
                correct=rules.correct(spec, objects, colors),
            )
        # The classifier is anyone's code; one image it cannot take must not lose the others.
        except Exception as error:  # noqa: BLE001
            return GenevalOutcome(State.FAILED, None, describe(error))
        return GenevalOutcome(State.SCORED, figures, "")


class _ColorsOfImage:
    """Colours of objects in one image; each set of objects is classified once, though three figures ask for it."""

    def __init__(self, classifier: ColorClassifier | None, image_HWC: NDArray[np.uint8]) -> None:
        self._classifier = classifier
        self._image_HWC = image_HWC
        self._known: dict[tuple[int, ...], list[str]] = {}

    def __call__(self, objects: Sequence[Detection]) -> list[str]:
        key = tuple(id(item) for item in objects)
        if key not in self._known:
            if self._classifier is None:
                raise RuntimeError("a colour is asked for, but there is no colour classifier")
            colors = self._classifier(self._image_HWC, objects)
            if len(colors) != len(objects):
                raise ValueError(f"the colour classifier named {len(colors)} colours for {len(objects)} objects")
            self._known[key] = colors
        return self._known[key]


def _try_colors(classifier: ColorClassifier, class_name: str) -> None:
    side = 64
    whole = Detection(class_name, 1.0, (0.0, 0.0, float(side), float(side)))
    named = list(classifier(known_image(side), [whole]))
    if len(named) != 1 or named[0] not in classifier.colors:
        raise RuntimeError(
            f"the colour classifier named {named} for one object; it knows {', '.join(classifier.colors)}"
        )


def _check_detections(detections: Sequence[Detection]) -> None:
    """NaN compares as false everywhere and would pass as an object that is not there."""
    for item in detections:
        if not all(map(math.isfinite, (item.confidence, *item.box_xyxy))):
            raise ValueError(f"the detector gave a {item.class_name} at {item.box_xyxy} with {item.confidence}")


def _is_not_applicable(item: rules.Spec | GenevalOutcome) -> bool:
    return isinstance(item, GenevalOutcome) and item.state == State.NOT_APPLICABLE


def _build(path: str, arguments: dict[str, Any], protocol: type) -> Any:
    part, model = load_dotted(path), ARGS_OF_GENEVAL_PART.get(path)
    built = part(**arguments) if model is None else part(model.model_validate(arguments))
    if not isinstance(built, protocol):
        raise TypeError(f"{path} does not keep rewards.detection.{protocol.__name__}")
    return built
