"""`ale rock exec`: a command in a sandbox as if it ran here, with its output, input, signals and exit code.

Without -t the two outputs stay apart: raw in a pipe or file, escaped on a terminal. How the process ends:

    the command's own code  it exited
    128 + n                 signal n ended it
    124                     it ran longer than --timeout
    69                      the service failed, not the command; standard error says how
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ale.rock.boxes import find_box, server
from ale.terminal import Output
from rock_env.client.sandbox.exec import RemoteCommand
from rock_env.errors import RockError
from rock_env.sandbox import ExecResult, OutputChunk

__all__ = [
    "TIMED_OUT",
    "CommandLine",
    "exec_command",
    "exit_code",
    "passing_signals",
    "show_output",
    "stdin_pieces",
]

TIMED_OUT = 124
"""As coreutils' `timeout` says it."""
FAILED = 69
"""EX_UNAVAILABLE of sysexits.h."""
_ANY_SIZE = 1 << 50
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What to run."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    timeout_s: float = 3600.0


def exit_code(end: ExecResult) -> int:
    """Return what a process that stands for the command exits with."""
    if end.infra_error:
        return FAILED
    if end.timed_out:
        return TIMED_OUT
    return 128 + end.signal if end.signal is not None else end.exit_code or 0


def exec_command(address: str, box: str, line: CommandLine, *, stdin: bool) -> int:
    """Run a command in a sandbox and return the exit code to end with. Raise `RockError`."""
    end = asyncio.run(_exec(address, box, line, stdin))
    if end.infra_error:
        _say(f"the service failed the command: {end.infra_error}")
    elif end.timed_out:
        _say(f"the command ran longer than {line.timeout_s:g} s and was killed")
    elif end.oom_killed:
        _say("the command was killed because the sandbox ran out of memory")
    return exit_code(end)


async def _exec(address: str, box: str, line: CommandLine, stdin: bool) -> ExecResult:
    async with server(address) as client:
        attached = await client.sandboxes.attach((await find_box(client, box)).id)
        # Not resumable: then the sandbox would have to keep all of the output, and here it may be of any size.
        command = attached.start(
            line.argv,
            env=line.env,
            cwd=line.cwd or None,
            timeout_s=line.timeout_s,
            max_output_bytes=_ANY_SIZE,
            resumable=False,
            stdin=stdin,
        )
        async with command, asyncio.TaskGroup() as group:
            with passing_signals(command):
                feeding = group.create_task(_feed(command)) if stdin else None
                await show_output(command.output())
                if feeding is not None:
                    feeding.cancel()
                return await command.wait()


async def show_output(chunks: AsyncIterator[OutputChunk]) -> None:
    """Write what a process of a sandbox wrote to our outputs: raw to a pipe or file, escaped to a terminal."""
    outputs = {"stdout": Output(sys.stdout), "stderr": Output(sys.stderr)}
    async for chunk in chunks:
        outputs[chunk.stream].write(chunk.data)
    for output in outputs.values():
        output.write(b"", last=True)


async def _feed(command: RemoteCommand) -> None:
    with suppress(RockError):  # how the command ends says what happened
        async for piece in stdin_pieces():
            await command.write(piece)
        await command.close_stdin()


async def stdin_pieces() -> AsyncIterator[bytes]:
    """Yield what comes in on standard input, whatever kind of file it is, one piece ahead of its reader."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    taken = threading.Semaphore(1)

    def read() -> None:
        with suppress(OSError, RuntimeError):  # the loop closed: nobody asks any more
            while True:
                taken.acquire()
                piece = os.read(0, _PIECE_BYTES)
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
                if not piece:
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()  # a read cannot be interrupted
    while piece := await pieces.get():
        yield piece
        taken.release()


@contextmanager
def passing_signals(command: RemoteCommand) -> Iterator[None]:
    """Pass Ctrl-C, SIGTERM and SIGHUP on to the command instead of dying of them."""
    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    async def send(number: int) -> None:
        with suppress(RockError):
            await command.signal(number)

    def caught(number: int) -> None:
        task = loop.create_task(send(number))
        sending.add(task)
        task.add_done_callback(sending.discard)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, caught, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _say(text: str) -> None:
    sys.stderr.write(f"ale: {text}\n")
