"""`marble check`: everything that would stop a run, before it starts."""

from deploy.commands.options import AddressOption, JsonOption, RecipeArgument, SetOption


def check(
    recipe: RecipeArgument, sets: SetOption = None, address: AddressOption = None, as_json: JsonOption = False
) -> int:
    """Check a recipe: keys, prompts, models, resources, and one image through every reward.

    Lists every problem it finds, one a line; exit code 2 if there is any.
    """
    from deploy.checking import check_recipe

    return check_recipe(recipe, sets or (), address, as_json)
