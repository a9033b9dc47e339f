"""The process of an observer: `python -m trainer.observers.process NAME`. `ale.watching.observing` starts it.

It reads JSON lines from standard input, `{"begin": ObservedRun}`, `{"record": [step, kind, metrics]}`, `{"end": outcome}`,
and writes JSON lines: `{"ready": true}`, or `{"failed": why}`. What a library prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rock_env.errors import RockError
from rock_env.plugins import load
from trainer.observers.base import GROUP, ObservedRun, RunObserver

__all__: list[str] = []

_CHARS = 1000


def _main(name: str) -> int:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(**answer: object) -> None:
        answers.write(f"{json.dumps(answer)}\n")

    try:
        observer: RunObserver = load(GROUP, name)()  # type: ignore[operator]  # by its entry point
    except RockError as error:
        say(failed=str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - boundary: whatever its constructor raises
        say(failed=_said(error))
        return 1
    say(ready=True)
    is_on = False
    for line in sys.stdin:
        [(what, told)] = json.loads(line).items()
        if what == "begin":
            if is_on:  # the run's processes were started again
                _tried(say, observer.end, "failed")
            run = ObservedRun(**{**told, "folder": Path(told["folder"])})
            is_on = _tried(say, observer.begin, run, then=". It is told nothing of this run.")
        elif is_on and what == "record":
            _tried(say, observer.record, *told)
        elif is_on:
            _tried(say, observer.end, told)
            is_on = False
    if is_on:  # the run was killed
        _tried(say, observer.end, "failed")
    return 0


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_CHARS]


def _tried(say: Callable[..., None], call: Callable[..., None], *told: Any, then: str = "") -> bool:
    """Call; return whether it raised nothing. `then`: what is said after what it raised."""
    try:
        call(*told)
    except Exception as error:  # noqa: BLE001 - boundary: an observer of anybody's; the next record may be taken
        say(failed=_said(error) + then)
        return False
    return True


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
