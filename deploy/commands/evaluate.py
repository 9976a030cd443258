"""`marble eval`: a run or a LoRA on held-out prompts."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import AddressOption, JsonOption


def evaluate(
    what: Annotated[Path, typer.Argument(metavar="RUN|LORA", help="A run directory, or a LoRA file or folder.")],
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe with base, prompts and rewards; needed for a LoRA outside a run.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Other prompts: .txt lines, GenEval's .jsonl, or .parquet.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Prompt source that --prompts stands in for, where the recipe has several.")
    ] = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score the same held-out prompts with the base and with the LoRA, and print both."""
    from deploy.evaluating import evaluate_lora

    evaluate_lora(what, recipe, prompts, source, address, as_json)
