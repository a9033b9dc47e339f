"""Copy each checkpoint of a run to a bucket, on a thread that training never waits for.

Whoever finished a checkpoint calls `add`: what a resume needs is set aside by hard links, as a kill at that moment would
leave it, and uploaded from there. A copy that fails is a fault of a run that goes on; the next checkpoint is copied anew.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from agent_runtime.store import FOLDER, trajectory_files
from trainer.checkpoint import number_of
from trainer.config import CheckpointOptions
from trainer.copies.fetching import COPY, FILES, OBJECT, contents, steps_in
from trainer.errors import CheckpointError, ConfigError, CopyError
from trainer.files import digests
from trainer.files.bucket import Bucket
from trainer.live.events import RunEvent
from trainer.records import PLAYED, SET_ASIDE
from trainer.rollout.experts import HELD_OUT

__all__ = ["Copies"]

Say = Callable[[RunEvent], None]
_END_S, _ABORT_S = 600.0, 2.0
"""How long the end of a run waits for its last copy, and how long an abort does."""
_EXPERTS = ("expert", HELD_OUT)
_ASIDE, _PROBE = ".copy-{}.aside", "probe"


class Copies:
    """Those of one run. Enter it as the run starts; before, and with an empty `checkpoint.copy_to`, it copies nothing."""

    def __init__(
        self, options: CheckpointOptions, folder: Path, say: Say = print, resumes: bool = False
    ) -> None:
        self._options, self._folder, self._say, self._resumes = options, folder, say, resumes
        self._bucket: Bucket | None = None
        self._done = self._failed = 0
        self._fails = False
        self._newest = ""
        """The checkpoint that was added last, unless it failed: those before that still wait are left out."""
        self._added = SimpleQueue[str]()
        self._sent = set[str]()
        """Objects that this process wrote: one of before may be damaged, and is written again."""
        self._thread = threading.Thread(target=self._work, name="copies", daemon=True)

    def __enter__(self) -> Copies:
        """Raise `ConfigError` for a bucket that is not reached, refuses, or holds copies of another run."""
        place = self._options.copy_to
        if not place:
            return self
        try:
            bucket = Bucket(place)
            bucket.put(_PROBE, b"x")
            b"".join(bucket.read(_PROBE, 1))
            bucket.delete(_PROBE)
            there = [] if self._resumes else [*steps_in(bucket)]
        except (CopyError, CheckpointError) as error:
            needs = "the bucket and AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
            raise ConfigError(f"checkpoint.copy_to: {error}. Look at {needs}.") from error
        if there:
            raise ConfigError(
                f"checkpoint.copy_to={place} holds a run, up to {there[0]}, expected none. Choose another prefix, or "
                f"continue that run: --resume --run NAME --from {place}"
            )
        for remains in self._folder.glob(_ASIDE.format("*")):  # of a process that was killed
            shutil.rmtree(remains, ignore_errors=True)
        self._bucket = bucket
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Return when the last copy is there, or after a while without."""
        if self._bucket is not None:
            self._added.put("")
            end_s = _END_S if kind is None or issubclass(kind, Exception) else _ABORT_S
            self._thread.join(end_s)
            if self._thread.is_alive():
                self._fail(self._newest, f"the end of the run waited {end_s:g} s for it")

    def metrics(self) -> dict[str, float]:
        """Return how many copies were made and how many failed; nothing where none is wanted."""
        counts = {"copies/done": float(self._done), "copies/failed": float(self._failed)}
        return counts if self._bucket else {}

    def add(self, path: Path) -> None:
        """Have a complete checkpoint copied. By one thread at a time."""
        if self._bucket is None or path.name == self._newest:
            return
        try:
            _set_aside(self._folder, path)
        except OSError as error:
            self._fail(path.name, str(error))
        else:
            self._newest = path.name
            self._added.put(path.name)

    def _work(self) -> None:
        for step in iter(self._added.get, ""):
            aside, why = self._folder / _ASIDE.format(step), ""
            try:
                if step == self._newest and self._bucket:
                    self._copy(self._bucket, aside, step)
            except Exception as error:  # noqa: BLE001 - boundary: training goes on, and the next copy may succeed
                why = str(error) or type(error).__name__
            shutil.rmtree(aside, ignore_errors=True)  # before it may be added anew
            if why:
                self._fail(step, why)

    def _fail(self, step: str, why: str) -> None:
        self._failed += 1
        self._fails = True
        if self._newest == step:
            self._newest = ""
        said = f"{step} was not copied to {self._options.copy_to}: {why}. The run goes on"
        self._say(RunEvent("fault", f"{said}, and its next checkpoint is copied"))

    def _copy(self, bucket: Bucket, aside: Path, step: str) -> None:
        """Upload all files, then the manifest that makes them a copy; delete what is kept no longer."""
        digests.seal(aside)
        sealed = digests.read(aside)
        assert sealed is not None
        for path, each in sealed.files.items():
            if each.blake2b not in self._sent:
                bucket.put(OBJECT.format(each.blake2b), aside / path)
                self._sent.add(each.blake2b)
        bucket.put(COPY.format(step), aside / digests.FILE)
        self._done += 1
        if self._fails:
            self._fails = False
            self._say(RunEvent("recovery", f"{step} was copied to {self._options.copy_to}"))
        self._thin_out(bucket, aside, step)

    def _thin_out(self, bucket: Bucket, aside: Path, newest: str) -> None:
        """Keep the newest `checkpoint.keep`, and their objects. Steps after them are those of a run before its resume."""
        there, most = steps_in(bucket), number_of(newest) or 0
        kept = [step for step, number in there.items() if number <= most][: self._options.keep]
        for step in there.keys() - {*kept}:
            bucket.delete(COPY.format(step))
        needed = set[str]()
        for step in kept:
            with suppress(CheckpointError):  # damaged, so that it is no copy
                needed |= {each.blake2b for each in contents(bucket, step, aside).values()}
        for name in {*bucket.names(str(Path(OBJECT).parent))} - needed:
            bucket.delete(OBJECT.format(name))
        self._sent &= needed


def _set_aside(folder: Path, path: Path) -> None:
    """Lay what a resume from this checkpoint needs into a folder beside it. Raise `OSError`."""
    aside = folder / _ASIDE.format(path.name)
    shutil.rmtree(aside, ignore_errors=True)
    for each in _needed(folder, path):
        to = aside / each.relative_to(folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        if each.suffix != ".jsonl":  # which grows
            with suppress(OSError):  # of a file system without hard links
                os.link(each, to)
        if not to.exists():
            shutil.copyfile(each, to)


def _needed(folder: Path, path: Path) -> Iterator[Path]:
    """Yield the files, the journal first: whatever it tells of is on record by then."""
    yield from (folder / name for name in FILES if (folder / name).is_file())
    for part in (path, folder / "waiting", folder / "rewards"):
        yield from (each for each in part.rglob("*") if each.is_file() and not each.name.startswith("."))
    for each in trajectory_files(folder / FOLDER):
        kind, _, number = each.stem.rpartition("-")
        if each.stem in _EXPERTS or (
            kind in (PLAYED, SET_ASIDE) and int(number) > (number_of(path.name) or 0)
        ):
            yield each
