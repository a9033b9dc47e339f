"""Which audit events GEM's and Gymnasium's scorers raise for answers: right, wrong and malformed ones.

`python tests/contract/answer_events.py [--tasks N] [--limit-s S] [--ids PATTERN]`. Plays every id, or those that match,
each in a process of its own without the guard that would end it; those that are left out, too. The last line is one JSON
object: `played`, `unplayed` (they cannot be made here, or take longer than S seconds of a CPU), `raising` (by id the events
that the guard does not let pass) and `left_out` (the ids that are refused by name). An id in `raising` has to be one in
`left_out`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from fnmatch import fnmatchcase
from typing import Any

from rock_env import plugins
from rock_env.env_workers.answer_guard import HARMLESS
from rock_env.games.game import Game
from sandboxes.libraries.hosting import Library

MALFORMED = (
    *(
        "",
        "x",
        "\\boxed{}",
        "\\boxed{x}",
        "\\boxed{1}",
        "\\boxed{1 2 3}",
        "\\boxed{[1, 2]}",
        "\\boxed{[[1, 2], [3, 4]]}",
    ),
    *(
        "\\boxed{(a + b) * 2}",
        '\\boxed{{"a": 1}}',
        "\\boxed{1/2}",
        "\\boxed{f(x) = 2}",
        "\\boxed{'a'}",
        "\\boxed{True}",
    ),
    *(
        "\\boxed{1.5e3}",
        "\\boxed{x = 3}",
        "\\boxed{A, B}",
        "\\boxed{a\nb}",
        "\\boxed{((((}",
        "0",
        "[0.5]",
        "[[]]",
        "null",
    ),
)
RANDOM = 12


def answers(game: Any) -> Iterator[str]:
    """Yield answers to the question of a game that was reset, and random actions."""
    yield from MALFORMED
    asked = getattr(getattr(game, "_env", None), "data", None)
    if isinstance(asked, dict) and "answer" in asked:
        right = str(asked["answer"])
        for answer in (right, right[::-1], right[1:], f"{right}1", right.upper(), right.replace(" ", "")):
            yield f"\\boxed{{{answer}}}"
    else:
        for _ in range(RANDOM):
            yield game.action()


def heard(library: Library[Any], env_id: str, tasks: int) -> list[str] | None:
    """Play an id in this process and return the events, or None where it cannot be made."""
    found: set[str] = set()
    listening = False

    def hook(event: str, _: object) -> None:
        if listening:
            found.add(event)

    params = library.params()
    source = plugins.load_env(f"{library.name}:none").tasks(params)

    def begun(index: int) -> Game:
        task = source.get("train", index)
        game = library.game(env_id, params, task)
        game.reset(index)
        return game

    try:
        begun(0)
    except Exception:  # noqa: BLE001  # a library's own code
        return None
    sys.addaudithook(hook)
    for index in range(tasks):
        game = begun(index)
        asked = isinstance(getattr(getattr(game, "_env", None), "data", None), dict)
        for answer in answers(game):
            if not asked:  # a question may be answered again and again
                game = begun(index)
            listening = True
            with suppress(Exception):  # an answer that its library cannot take
                game.step(answer)
            listening = False
    return sorted(found - HARMLESS)


def apart(library: Library[Any], env_id: str, tasks: int, limit_s: int) -> list[str] | None:
    """Return what `heard` does, from a process of its own; None also where it took too long."""
    with suppress(Exception), redirect_stdout(io.StringIO()):  # what is missing the process sees as well
        library.prepare(env_id)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        warnings.simplefilter("ignore")
        os.write(writing, json.dumps(heard(library, env_id, tasks)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    found: list[str] | None = json.loads(text or "null")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="List the audit events of hosted scorers.")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--limit-s", type=int, default=60)
    parser.add_argument("--ids", default="*", help="such as gem:rg:*")
    arguments = parser.parse_args()
    played, unplayed, left_out, raising = [], [], [], {}
    for name in ("gem", "gym"):
        library: Any = plugins.load_library(name)
        hosted = set(library.ids())
        for env_id in library.known():
            whole = f"{name}:{env_id}"
            if not fnmatchcase(whole, arguments.ids):
                continue
            if env_id not in hosted:
                left_out.append(whole)
            found = apart(library, env_id, arguments.tasks, arguments.limit_s)
            (unplayed if found is None else played).append(whole)
            if found:
                raising[whole] = found
                sys.stderr.write(f"{whole}: {', '.join(found)}\n")
    told = {"played": played, "unplayed": unplayed, "raising": raising, "left_out": left_out}
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main()
