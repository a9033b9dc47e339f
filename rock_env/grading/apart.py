"""A function of what a run left behind, called where it cannot hold up anybody: untrusted text never runs on the event loop.

Used by `verifier`. Text up to `_LITTLE` bytes is read at once. More goes to a process of its own, which has a
deadline, less memory than it could ask for, and a lower priority than the server.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rock_env.errors import InfraError
from rock_env.grading.outcomes import Unreadable
from rock_env.telemetry.shown import output_of_children

__all__ = ["apart"]

P = ParamSpec("P")
T = TypeVar("T")

_LITTLE = 64 << 10
"""Bytes: the slowest reader takes 0.2 s for so much."""
_WITHIN_S = 60.0
_MEMORY_BYTES = 2 << 30
"""Of addresses."""


async def apart(act: Callable[P, T], size: int, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `act(*args)`, a module's function of `size` bytes of text.

    Raise `Unreadable` as `act` does, and where it took more than 60 seconds or 2 GiB.
    """
    if size <= _LITTLE:
        return act(*args, **kwargs)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=PIPE,
        stdout=PIPE,
        stderr=output_of_children(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_WITHIN_S):
            said, _ = await process.communicate(pickle.dumps((act, args, kwargs)))
    except TimeoutError:
        raise Unreadable(f"reading its {size} bytes takes longer than {_WITHIN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode or not said:
        raise InfraError(f"the process that reads a run's output ended with {process.returncode}.")
    result = pickle.loads(said)
    if isinstance(result, Unreadable):
        raise result
    return result  # type: ignore[no-any-return]


def main() -> None:
    """Call the function that standard input names, and write its result."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        act, args, kwargs = pickle.load(sys.stdin.buffer)
        result = act(*args, **kwargs)
    except Unreadable as error:
        result = error
    except MemoryError:
        result = Unreadable(f"reading it takes more than {_MEMORY_BYTES >> 30} GiB")
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
