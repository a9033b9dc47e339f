"""Tell observers (`trainer.observers`) what a run measures: each in a process of its own, which the run never waits for.

Whom to tell is no setting of the run, but of who starts it, for the reasons that `ale.watching.notifying` gives.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin

from pydantic import BaseModel

from ale.option_names import flat
from ale.training import runs
from ale.watching.passing import PassesOn
from rock_env.errors import nearest
from rock_env.foreign import budget
from rock_env.foreign.files import open_regular
from rock_env.plugins import names
from rock_env.store.whole_file import write_whole
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.observers.base import GROUP
from trainer.signals import held

if TYPE_CHECKING:
    from trainer.metrics import Observer

__all__ = ["Observing", "observing"]

_WAITING = 1000
"""Most records that wait for an observer; further ones are left out until it has caught up."""
_READY_S, _END_S, _ABORT_S, _LOOK_S = 120.0, 15.0, 2.0, 0.1
"""How long an observer may take to load, and at the run's end to take what waits: less than the grace of a stop."""
_ALWAYS = "tensorboard"
_NAMES = ("env", "algo", "model")
_ID = "observed.id"
_IDS = re.compile("[0-9a-f]{32}")


class _Process:
    """An observer's process, a thread that feeds it and one that hears it."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.name, self._say = name, say
        self._waiting: deque[dict[str, Any]] = deque()
        self._moved = threading.Condition()
        self._left_out, self._ends, self._given_up, self._said = 0, False, False, set[str]()
        self.ready, self.why_not = threading.Event(), ""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainer.observers.process", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C stops the run, whose end it is then told
        )
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._feed, self._hear)]
        with held():
            for each in self._threads:
                each.start()

    def tell(self, **told: Any) -> None:
        """Have it told, some time. Where too many wait it is left out."""
        if not self._threads[0].is_alive():
            return
        with self._moved:
            if len(self._waiting) < _WAITING:
                self._waiting.append(told)
                self._moved.notify()
                return
            self._left_out += 1
        said = f"is slower than the run or hangs: {_WAITING} records wait, further ones are left out"
        self._say_once("slow", said)

    def tell_end(self, outcome: str) -> None:
        """Have it told the end, once it was told what waits."""
        with self._moved:
            self._ends = True
            self._waiting.append({"end": outcome})
            self._moved.notify()

    def end(self, until_s: float) -> None:
        """Wait for the process, which was told the end, at most until then."""
        for each in self._threads:
            each.join(max(0.0, until_s - time.monotonic()))
        if self._threads[1].is_alive():
            self._given_up = True
            self._say_once("given up", "has not taken everything in time and is given up")
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and what it has left behind
        self._process.wait()
        if self._left_out:
            self._say_once("left out", f"was not told {self._left_out} records")

    def _feed(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:
            while True:
                with self._moved:
                    while not self._waiting:
                        if self._ends:
                            return
                        self._moved.wait()
                    told = self._waiting.popleft()
                pipe.write(f"{json.dumps(told)}\n")
                pipe.flush()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                failed = json.loads(line).get("failed")
                if failed and not self.ready.is_set():
                    self.why_not = failed
                elif failed:
                    self._say_once("failed", f"failed: {failed}")
                self.ready.set()
        if not self.ready.is_set():
            self.why_not = "its process ended as it began"
            self.ready.set()
        elif not self.why_not and not self._given_up and (self._process.wait() or not self._ends):
            self._say_once("ended", "ended: its process is gone, and is told nothing more")

    def _say_once(self, kind: str, what: str) -> None:
        """Say the first of a kind: texts of errors often differ by a step or an address."""
        with self._moved:
            if kind in self._said:
                return
            self._said.add(kind)
        with suppress(Exception):
            self._say(f"note: the observer {self.name!r} {what}")


class Observing(PassesOn):
    """An observer that passes everything on to another one, and every record of metrics to processes (`HearsRecords`)."""

    def __init__(self, to: Observer, folder: Path, processes: Sequence[_Process]) -> None:
        super().__init__(to)
        self._folder, self._processes = folder, processes
        self.outcome: Literal["finished", "stopped", "failed"] = "failed"

    def check(self) -> None:
        """Wait until the observers have loaded, or somebody stops the run. Raise `ConfigError` where one does not load."""
        until_s = time.monotonic() + _READY_S
        for each in self._processes:
            while not each.ready.wait(_LOOK_S) and not self._to.stop_requested:
                if time.monotonic() > until_s:
                    each.why_not = f"it did not load within {_READY_S:g} s"
                    break
            if each.why_not:
                raise ConfigError(f"--observe {each.name}: {each.why_not}")

    def on_records(self, resume_step: int | None) -> None:
        if not self._processes:
            return
        run = {
            "id": _id_of(self._folder, is_new=resume_step is None),
            "name": self._folder.name,
            "folder": str(self._folder),
            "settings": _told_of(flat(budget.read_settings(self._folder / runs.CONFIG))),
            "resume_step": resume_step,
        }
        for each in self._processes:
            each.tell(begin=run)

    def on_record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        for each in self._processes:
            each.tell(record=[step, kind, dict(metrics)])


@contextmanager
def observing(to: Observer, folder: Path, chosen: Sequence[str]) -> Iterator[Observing]:
    """Start the observers of these names, and end them with the block. Raise `UnknownName`."""
    known = names(GROUP)
    for name in chosen:
        if name not in known:
            raise nearest("observer", name, known)
    with ExitStack() as stack:
        processes = [_Process(name, to.on_log) for name in dict.fromkeys(chosen) if name != _ALWAYS]
        observer, wait_s = Observing(to, folder, processes), _END_S
        try:
            yield observer
        except BaseException as error:
            wait_s = _END_S if isinstance(error, Exception) else _ABORT_S
            raise
        finally:
            until_s = time.monotonic() + wait_s
            for each in processes:  # before one is waited for that hangs
                each.tell_end(observer.outcome)
                stack.callback(each.end, until_s)


def _id_of(folder: Path, *, is_new: bool) -> str:
    """Return the run's id, which stands in its folder; a new one where that holds none."""
    path, found = folder / _ID, ""
    with suppress(OSError), open_regular(path) as opened:
        found = opened.read(64).decode("ascii", "replace")
    if is_new or not _IDS.fullmatch(found):
        found = uuid.uuid4().hex
        write_whole(path, lambda beside: beside.write_text(found))
    return found


def _told_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that hold no text of a user's: numbers, switches, choices; and the names of what learns where."""
    choices = {*_choices(TrainConfig), *_NAMES}
    told = {
        name: value
        for name, value in settings.items()
        if isinstance(value, bool | int | float) or (isinstance(value, str) and name in choices)
    }
    return {**told, "model": Path(str(told.get("model", ""))).name}


def _choices(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of the settings that take one of several words."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _choices(kind, f"{prefix}{name}.")
        elif get_origin(kind) is Literal:
            yield prefix + name
