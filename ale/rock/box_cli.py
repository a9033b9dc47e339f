"""The `ale rock` commands about sandboxes: make, list and delete them, run commands in them, copy files, clean up, check.

Options as the user types them; each is one call.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ale.rock.boxes import gc_command, pairs, ps_command
from ale.rock.copy import copy_command
from ale.rock.doctor import doctor_command
from ale.rock.exec import CommandLine, exec_command
from ale.rock.life import create_command, rm_command
from ale.rock.logs import logs_command
from ale.rock.reach import ADDRESS_IN_USE, ServerOption
from ale.rock.terminal import shell_command, terminal_command

__all__ = ["cp", "create", "doctor", "exec_box", "gc", "logs", "ps", "rm", "shell"]

JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
BoxArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A sandbox (ale rock ps); may be abbreviated.")
]


def create(
    image: Annotated[
        str,
        typer.Argument(metavar="IMAGE", help="Of the server's engine or registry; none: a process box."),
    ] = "",
    *,
    rock: ServerOption = ADDRESS_IN_USE,
    snapshot: Annotated[str, typer.Option("--snapshot", metavar="ID", help="Start from its files.")] = "",
    labels: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Repeat for several.")
    ] = None,
    lifetime_s: Annotated[
        float | None, typer.Option("--lifetime", metavar="SECONDS", min=1.0, help="Then it ends; 3600.")
    ] = None,
) -> None:
    """Make a sandbox and print its id. It lives until `ale rock rm` or the end of its lifetime."""
    create_command(rock, image, snapshot=snapshot, labels=labels or (), lifetime_s=lifetime_s)


def rm(
    boxes: Annotated[list[str], typer.Argument(metavar="ID", help="May be abbreviated.")],
    *,
    rock: ServerOption = ADDRESS_IN_USE,
) -> None:
    """Delete sandboxes, whatever runs in them."""
    rm_command(rock, boxes)


def ps(
    *,
    rock: ServerOption = ADDRESS_IN_USE,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Deleted ones too.")] = False,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only those with it. Repeat for several."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List your sandboxes: what they are for, their state and why, and when they end."""
    ps_command(rock, everything=everything, labels=labels or (), as_json=as_json)


def exec_box(
    box: BoxArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Not read by a shell.")],
    *,
    rock: ServerOption = ADDRESS_IN_USE,
    interactive: Annotated[bool, typer.Option("-i", help="Pass standard input on.")] = False,
    tty: Annotated[
        bool, typer.Option("-t", help="On this terminal, with its keys and size; with -i or without.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="Repeat for several.")
    ] = None,
    cwd: Annotated[str, typer.Option("--cwd", "-w", metavar="PATH", help="Where to run it.")] = "",
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Then it is killed; 3600. Not with -t."),
    ] = None,
) -> None:
    """Run a command in a sandbox, with its output, signals and exit code as if it ran here.

    Exit codes: the command's own; 128+n after signal n; 124 after the timeout; 69 if the service failed, not the
    command. Ctrl-C goes to the command.
    """
    argv = command[1:] if command[0] == "--" else command  # the parser keeps it, as it stopped before
    line = CommandLine(argv, pairs(env or (), "--env"), cwd, timeout_s or 3600.0)
    if not tty:
        raise typer.Exit(exec_command(rock, box, line, stdin=interactive))
    if timeout_s is not None:
        raise typer.BadParameter("a command on a terminal has no timeout: leave -t or --timeout out.")
    raise typer.Exit(terminal_command(rock, box, line))


def shell(box: BoxArgument, *, rock: ServerOption = ADDRESS_IN_USE) -> None:
    """Open a shell in a sandbox on this terminal; what is piped in is run by it instead.

    It ends by `exit` or Ctrl-D, with its exit code, and the sandbox lives on.
    """
    raise typer.Exit(shell_command(rock, box))


def logs(
    where: Annotated[
        str, typer.Argument(metavar="ID/PROCESS", help="Or ID alone: which processes there are.")
    ],
    *,
    rock: ServerOption = ADDRESS_IN_USE,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the process ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a background process of a sandbox wrote; the end of each output is kept."""
    logs_command(rock, where, follow=follow, as_json=as_json)


def cp(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A path here, or ID:PATH in a sandbox.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The other one of these.")],
    *,
    rock: ServerOption = ADDRESS_IN_USE,
) -> None:
    """Copy a file or a folder into a sandbox or out of it, with its permissions.

    As with cp -r: into DST if that is a folder, else to DST. Relative paths in a sandbox start at its working folder.
    """
    copy_command(rock, source, target)


def gc(
    *,
    rock: ServerOption = ADDRESS_IN_USE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete your sandboxes that failed and, with the scope admin, what lies on the node and nothing needs."""
    gc_command(rock, dry_run=dry_run, as_json=as_json)


def doctor(*, rock: ServerOption = ADDRESS_IN_USE, as_json: JsonOption = False) -> None:
    """Check this machine for sandboxes, and a server's records against its node; exits with 1 where something is wrong.

    The census of the node needs a token with the scope admin.
    """
    raise typer.Exit(doctor_command(rock, as_json=as_json))
