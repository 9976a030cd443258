"""New pictures of both sides, of as many held-out prompts as wanted, through diffusers' own pipeline."""

from collections.abc import Callable, Sequence
from functools import partial

from actors.prompts import Prompt, read_sources
from deploy.arena.sides import ARENA_SIDE, BASE, Contestant, Entry, Match, checked, matched
from deploy.drawing import Look, draw, find_look, load
from deploy.errors import ProblemsError, loading
from deploy.libraries import quiet
from deploy.recipe import Recipe
from deploy.report.naming import labels
from deploy.report.pictures import encoded
from deploy.rundir import RunDir, load_run
from learner.errors import UserError

Say = Callable[[str], None]


def drawn_match(runs: Sequence[RunDir], per_source: int, device: str | None, say: Say) -> Match:
    """The first held-out prompts of each source, drawn by both sides with the noise of the run's own evaluations.

    Raises:
        UserError: a run has no LoRA yet, its prompts are gone, or the two have others.
    """
    quiet()
    recipes = [load_run(run.path)[1] for run in runs]
    names = labels([run.path for run in runs])
    looks = [find_look(run.path, None, None, None) for run in runs]
    warnings: tuple[str, ...] = ()
    if len(runs) == 1:
        names, looks, recipes, runs = [BASE, names[0]], [_base(looks[0]), looks[0]], recipes * 2, [*runs, *runs]
    else:
        warnings = checked([recipe.resolved for recipe in recipes], names)
    prompts = [_prompts(recipe, per_source) for recipe in recipes]
    if prompts[0] != prompts[1]:
        raise UserError(f"{runs[0].path} and {runs[1].path} have different held-out prompts")
    seed = recipes[0].config.eval.seed
    drawn = []
    for name, look, run in zip(names, looks, runs, strict=True):
        entries = _entries(look, prompts[0], seed, device, partial(_tell, say, name))
        drawn.append(Contestant(name, str(run.path), _done(look), entries))
    return matched(drawn[0], drawn[1], warnings)


def _tell(say: Say, name: str, text: str) -> None:
    say(f"{name}: {text}")


def _base(look: Look) -> Look:
    return Look(look.policy.model_copy(update={"init_lora": None}), look.sampling, None)


def _done(look: Look) -> int:
    """Iterations done at the checkpoint whose LoRA it is."""
    return int(look.lora.parent.name) if look.lora is not None else 0


def _prompts(recipe: Recipe, per_source: int) -> list[tuple[int, Prompt]]:
    """(place among all held-out prompts of an evaluation, prompt) of the first ones of each source."""
    config = recipe.config
    sources, problems = read_sources(config.prompts, "heldout")
    if problems:
        raise ProblemsError(problems)
    everything = [prompt for prompts in sources.values() for prompt in prompts[: config.eval.prompts_per_source]]
    wanted = {prompt.prompt_id for prompts in sources.values() for prompt in prompts[:per_source]}
    return [(place, prompt) for place, prompt in enumerate(everything) if prompt.prompt_id in wanted]


def _entries(
    look: Look, prompts: Sequence[tuple[int, Prompt]], seed: int, device: str | None, say: Say
) -> dict[str, Entry]:
    # Not at the top: these load torch.
    from PIL import Image

    from learner.noise import sample_seed
    from learner.policy import to_uint8

    with loading():
        pipeline = load(look, device)
    found: dict[str, Entry] = {}
    for number, (place, prompt) in enumerate(prompts, start=1):
        image = draw(pipeline, look, prompt.text, sample_seed(seed, "eval", 0, place))
        picture = Image.fromarray(to_uint8(image[None].float())[0])
        found[prompt.prompt_id] = Entry(prompt.source, prompt.text, encoded(picture, ARENA_SIDE))
        say(f"{number} of {len(prompts)} pictures")
    return found
