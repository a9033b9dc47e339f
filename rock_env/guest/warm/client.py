"""`rock-python ARGUMENTS` in a box: what `python ARGUMENTS` does, by the box's warm interpreter where that can.

Becomes the script `rock-python` (see `backends/process/toolkit`), run by a bare interpreter, so it imports as little
as it can. It hands the arguments, folder, variables, limits and the three standard streams to the process at ADDRESS
(`warm`) and ends as the program ends. Where nobody listens there, or the answer is that the program must have an
interpreter of its own, it becomes that: the `python` that PATH names.
"""

# ruff: noqa: PTH109
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

ADDRESS = "\0rock-python"
"""Abstract: it is in the box's own network namespace, and in none of its folders."""
HEAD_BYTES = 8
COLD = b"cold"
_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
_LIMITS = 16  # of `man 2 getrlimit`


def ask(arguments: list[str]) -> bytes:
    """Let the program run and return how it ended; COLD if it has to be run otherwise."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(ADDRESS)
        request = marshal.dumps((arguments, os.getcwd(), list(_variables().items()), _limits(), _mask()), 2)
        head = len(request).to_bytes(HEAD_BYTES, "little")
        streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in range(3))
        connection.sendmsg([head], [(SOL_SOCKET, SCM_RIGHTS, streams)])
        connection.sendall(request)
    except OSError:
        return COLD
    for name in _PASSED_ON:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: connection.send(bytes([number])))
    try:
        return bytes(connection.recv(64))
    except OSError:
        return b""


def _variables() -> dict[bytes, bytes]:
    import posix

    return posix.environ


def _limits() -> list[tuple[int, int]]:
    from resource import getrlimit

    return [getrlimit(number) for number in range(_LIMITS)]


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def main(arguments: list[str]) -> None:
    """Run a program and end as it does."""
    if arguments and (arguments[0] == "-m" or not arguments[0].startswith("-")):
        said = ask(arguments)
        if said != COLD:
            kind, _, value = said.partition(b" ")
            if kind == b"exit":
                os._exit(int(value))
            # Nothing was said: who ran it was killed, and it was killed with that.
            number = int(value or signal.SIGKILL)
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
    for folder in os.environ.get("PATH", "/usr/bin:/bin").split(":"):
        try:
            os.execv(f"{folder}/python", ["python", *arguments])
        except OSError as error:
            problem = error
    sys.stderr.write(f"rock-python: cannot run python: {problem}\n")
    sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
