"""`ale rock shell` and `ale rock exec -t`: this terminal, as if it stood in the sandbox.

Every key goes through, Ctrl-C too; the size follows the window; the terminal's own settings come back whatever happens.
What is typed while the connection is broken is lost, with a bell.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ale.rock.boxes import find_box, server
from ale.rock.exec import CommandLine, exec_command, exit_code, stdin_pieces
from rock_env.client.sandbox.session import RemoteTerminal
from rock_env.errors import InvalidArgument, RockError, Unavailable
from rock_env.sandbox import ExecResult

__all__ = ["shell_command", "terminal_command"]

_SHELL = ("/bin/sh", "-c", 'exec "$(command -v bash || command -v sh)"')
_BELL = b"\a"


def shell_command(address: str, box: str) -> int:
    """Run a shell in a sandbox on this terminal, or on what is piped in. Raise `RockError`."""
    if not sys.stdin.isatty():
        return exec_command(address, box, CommandLine(["/bin/sh"]), stdin=True)
    return terminal_command(address, box, CommandLine(_SHELL))


def terminal_command(address: str, box: str, line: CommandLine) -> int:
    """Run a command in a sandbox on this terminal and return the exit code to end with. Raise `RockError`."""
    if not sys.stdin.isatty():
        raise InvalidArgument("-t needs a terminal on standard input, and there is none. Leave -t out.")
    return exit_code(asyncio.run(_terminal(address, box, line)))


async def _terminal(address: str, box: str, line: CommandLine) -> ExecResult:
    async with server(address) as client:
        attached = await client.sandboxes.attach((await find_box(client, box)).id)
        size = _size()
        env = {"TERM": os.environ.get("TERM", "xterm"), **line.env}
        terminal = await attached.pty(
            line.argv, rows=size.lines, columns=size.columns, env=env, cwd=line.cwd or None
        )
        async with terminal, asyncio.TaskGroup() as group:
            with _raw(), _following_size(terminal, group):
                typing = group.create_task(_type(terminal))
                async for chunk in terminal.output():
                    sys.stdout.buffer.write(chunk.data)
                    sys.stdout.buffer.flush()
                typing.cancel()
                return await terminal.wait()


def _size() -> os.terminal_size:
    """Return this terminal's size; 80 by 24 for what it does not know (0), as on a serial line or in a CI job."""
    known = os.get_terminal_size(0)
    return os.terminal_size((known.columns or 80, known.lines or 24))


async def _type(terminal: RemoteTerminal) -> None:
    async for keys in stdin_pieces():
        try:
            await terminal.write(keys)
        except Unavailable:
            sys.stdout.buffer.write(_BELL)
            sys.stdout.buffer.flush()


@contextmanager
def _raw() -> Iterator[None]:
    former = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, former)


@contextmanager
def _following_size(terminal: RemoteTerminal, group: asyncio.TaskGroup) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    async def resize() -> None:
        size = _size()
        with suppress(RockError):  # the next change of size tries again
            await terminal.resize(size.lines, size.columns)

    loop.add_signal_handler(signal.SIGWINCH, lambda: group.create_task(resize()))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
