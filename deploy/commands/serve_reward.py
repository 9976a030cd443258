"""`marble serve-reward`: one reward behind HTTP, for runs that are elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption, SetOption


def serve_reward(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A scorer (built-in, entry point, package.module:Class), or a reward.")
    ],
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe whose reward NAME is served; without it NAME is a scorer.")
    ] = None,
    sets: SetOption = None,
    args: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="KEY=VALUE", help="An argument of a scorer without recipe; YAML, repeatable."),
    ] = None,
    resolution: Annotated[
        int | None, typer.Option(min=32, max=8192, help="Pixels of the self-test's image; the recipe's, or 256.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8500,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable with the bearer token that clients must carry.")
    ] = None,
    max_request_mib: Annotated[
        int, typer.Option(min=1, max=65536, help="Largest body, and largest images once decoded.")
    ] = 256,
    queue: Annotated[int, typer.Option(min=1, max=1024, help="Requests that may be in at once; more get 429.")] = 8,
    grace_s: Annotated[
        int,
        typer.Option(min=0, max=86400, help="Seconds that requests under way get to finish once it is stopped."),
    ] = 30,
    as_json: JsonOption = False,
) -> int:
    """Serve one reward over HTTP (docs/http_rewards.md) until SIGTERM or Ctrl-C.

    Recipes reach it with scorer: http and args: {url: http://HOST:PORT}.
    """
    from deploy.libraries import quiet

    quiet()
    from deploy.reward_service.app import Limits
    from deploy.reward_service.serving import Order, serve

    limits = Limits(max_request_bytes=max_request_mib * 2**20, max_places=queue)
    order = Order(name, recipe, sets or (), args or (), resolution, host, port, token_env, limits, grace_s, as_json)
    return serve(order)
