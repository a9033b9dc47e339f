"""Parts of a benchmark, each in a process of its own that is ended at its limit: a hang or a crash takes no other part.

A part is a generator function `module:function` that gets `about` and yields pieces: a name, and what to call for its
figures. A piece that raises is reported and the next one goes on. A part that is ended keeps the pieces that it had.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.scaffold import say

__all__ = ["Part", "Pieces", "run_parts"]

Pieces = Iterator[tuple[str, Callable[[], Any]]]
"""What a part yields."""
_LEAST_S = 5.0
"""A part that would have less time is left out."""
_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Part:
    """Where a part is, and how long it may take."""

    where: str
    """`module:function`. The function gets `about` and the seconds that it has."""
    most_s: float


def run_parts(
    parts: Mapping[str, Part],
    about: Any,
    *,
    seconds: float,
    out: Path | None = None,
    preload: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Run all within `seconds`; print a line of JSON as each ends. `out` gets these lines at once, and each piece's."""
    _CONTEXT.set_forkserver_preload(list(preload))
    began, found = monotonic(), dict[str, dict[str, Any]]()

    def keep(name: str, figures: Mapping[str, Any]) -> str:
        line = json.dumps({"name": name, **figures})
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        return line

    for name, part in parts.items():
        left = min(part.most_s, seconds - (monotonic() - began))
        if left < _LEAST_S:
            found[name] = {"ok": False, "seconds": 0.0, "error": "left out: no time left"}
        else:
            found[name] = _run(part.where, about, left, partial(keep, name))
        print(keep(name, found[name]), flush=True)
    return found


def _run(where: str, about: Any, limit_s: float, tell: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    began, pieces, error = monotonic(), dict[str, Any](), ""
    mine, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_work, args=(where, about, limit_s, theirs))
    process.start()
    theirs.close()
    try:
        while mine.poll(max(0.0, began + limit_s - monotonic())):
            piece = mine.recv()
            pieces |= piece
            tell(piece)
        error = f"ended at its limit of {limit_s:.0f} s"
    except EOFError:
        process.join(_LEAST_S)
        if process.exitcode:
            error = f"its process ended with {process.exitcode}"
    finally:
        assert process.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
    failed = [name for name, value in pieces.items() if "failed" in value]
    told = {"error": error or f"failed: {', '.join(failed)}"} if error or failed else {}
    return {"ok": not told, "seconds": round(monotonic() - began, 1), **told, **pieces}


def _work(where: str, about: Any, limit_s: float, pipe: Connection) -> None:
    """Run a part in this process, which leads a group of its own and ends with who started it."""
    os.setsid()
    os.dup2(2, 1)  # standard output has lines of JSON alone
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, _, name = where.partition(":")
    pieces = None
    while True:
        piece = "between pieces"
        try:
            pieces = pieces or getattr(import_module(module), name)(about, limit_s)
            piece, act = next(pieces)
            value = act()
            json.dumps(value, allow_nan=False)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - the other pieces are to run whatever this one meets
            traceback.print_exc()
            value = {"failed": f"{type(error).__name__}: {str(error)[-600:]}"}
        act = None
        gc.collect()
        say(f"{name} {piece}: {json.dumps(value)}")
        pipe.send({piece: value})
        if piece == "between pieces":
            return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
