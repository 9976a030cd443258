"""`marble data`: what prompts a recipe has, and which rewards score them."""

from deploy.commands.options import JsonOption, RecipeArgument, SetOption


def data(recipe: RecipeArgument, sets: SetOption = None, as_json: JsonOption = False) -> int:
    """Show how many prompts each source has, how they quote text, and how many of them each reward scores.

    Files that cannot be read are told line by line; exit code 2 if there is any.
    """
    from deploy.prompt_report import report_prompts

    return report_prompts(recipe, sets or (), as_json)
