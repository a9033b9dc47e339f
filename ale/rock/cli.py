"""The `ale rock` commands by name: run a ROCK server, look at one, use its sandboxes.

A command's module is imported when it is asked for, so that `ale rock ps` does not wait for what `serve` needs.
"""

from __future__ import annotations

from typing import ClassVar

import typer

from ale.lazy_group import LazyGroup, Place

__all__ = ["rock_app"]

_PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Options after the sandbox's id are the command's."""


class _Rock(LazyGroup):
    places: ClassVar[dict[str, Place]] = {
        "create": Place(
            "ale.rock.box_cli:create",
            "Make a sandbox and print its id. It lives until `ale rock rm` or the end of its lifetime.",
        ),
        "ps": Place(
            "ale.rock.box_cli:ps",
            "List your sandboxes: what they are for, their state and why, and when they end.",
        ),
        "exec": Place(
            "ale.rock.box_cli:exec_box",
            "Run a command in a sandbox, with its output, signals and exit code as if it ran here.",
            settings=_PASS_ON,
        ),
        "shell": Place(
            "ale.rock.box_cli:shell",
            "Open a shell in a sandbox on this terminal; what is piped in is run by it instead.",
        ),
        "logs": Place(
            "ale.rock.box_cli:logs",
            "Print what a background process of a sandbox wrote; the end of each output is kept.",
        ),
        "cp": Place(
            "ale.rock.box_cli:cp",
            "Copy a file or a folder into a sandbox or out of it, with its permissions.",
        ),
        "rm": Place("ale.rock.box_cli:rm", "Delete sandboxes, whatever runs in them."),
        "gc": Place(
            "ale.rock.box_cli:gc",
            "Delete your sandboxes that failed and, with the scope admin, what lies on the node and nothing needs.",
        ),
        "doctor": Place(
            "ale.rock.box_cli:doctor",
            "Check this machine for sandboxes, and a server's records against its node; exits with 1 where something is "
            "wrong.",
        ),
        "serve": Place(
            "ale.rock.server:serve_rock",
            "Run a ROCK server until Ctrl-C; it prints its address on one line when it is ready.",
        ),
        "status": Place("ale.rock.server:status", "Say whether a server is up and how loaded it is."),
        "drain": Place(
            "ale.rock.server:drain",
            "Make a server stop gracefully: other replicas get its durable sandboxes, running calls may finish.",
        ),
        "token": Place(
            "ale.rock.tokens:token_app",
            "Make, list and revoke API tokens. A running server takes the change at its next call.",
        ),
        "image": Place(
            "ale.rock.images:image_app",
            "Build, list, check, delete and evict the images that sandboxes start from; build and push the server's own.",
        ),
        "context": Place(
            "ale.rock.context_cli:context_app",
            "Name installations of ROCK, with where their token and CA are; --rock takes the name.",
        ),
        "quota": Place("ale.rock.places:quota_app", "Bound what each tenant may hold, and see what is held."),
        "pool": Place(
            "ale.rock.places:pool_app", "Keep started sandboxes in stock, so that a Create is quick."
        ),
    }


rock_app = typer.Typer(cls=_Rock, no_args_is_help=True)


@rock_app.callback()
def _rock() -> None:
    """Run a ROCK server, look at one, use its sandboxes."""
