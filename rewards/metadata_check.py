"""What is wrong with a prompt's metadata in the eyes of a reward's scorer, told before anything is drawn.

Imports no torch: prompts are checked in the driver.
"""

from rewards.config import GenevalArgs, RewardConfig
from rewards.contract import Metadata
from rewards.dotted import load_dotted
from rewards.geneval_metadata import Names, parse_spec
from rewards.geneval_names import CLASSES, COLORS
from rewards.matching import text_target

_NAMES = {"rewards.mask2former:Mask2FormerDetector": CLASSES, "rewards.clip_colors:ClipColors": COLORS}
_LIGHT_PACKAGE = "tinyworld."
"""Its detector is looked at here too. Anyone else's module may need packages that only its own environment has, or
touch CUDA when it is imported."""


class MetadataCheck:
    """Looks for metadata that a reward's scorer would fail on."""

    def __init__(self, config: RewardConfig) -> None:
        self._scorer = config.scorer
        self._classes: Names = None
        self._colors: Names = None
        if config.scorer == "geneval":
            args = GenevalArgs.model_validate(config.args)
            self._classes = _names_of(args.detector, "classes")
            self._colors = () if args.colors is None else _names_of(args.colors, "colors")

    def __call__(self, prompt: str, metadata: Metadata) -> str:
        """What is wrong, in one line; empty when nothing is."""
        try:
            if self._scorer == "geneval":
                parse_spec(metadata, self._classes, self._colors)
            elif self._scorer == "ocr":
                text_target(prompt, metadata)
        except ValueError as error:
            return str(error)
        return ""


def _names_of(path: str, attribute: str) -> Names:
    """Names that a detector or classifier knows whatever its arguments; None where that cannot be told from here."""
    if path in _NAMES:
        return _NAMES[path]
    if not path.startswith(_LIGHT_PACKAGE):
        return None
    try:
        names = getattr(load_dotted(path), attribute, None)
    except ValueError:  # a path that leads nowhere is told when the scorer is built
        return None
    return names if isinstance(names, tuple) else None
