"""What a run planned, finished and consumed: `journal.jsonl` of its folder, append-only, read by `--resume`.

Lines (`Entry`): a plan with the version that samples it, a plan whose rollouts are all in, with what its batch needs beside
the records; a batch that was learned, with the rollouts that it holds and those that were set aside; and from which step a
process went on. Of a stream: a group that was let in, one that is in, and a batch that was formed. A killed process leaves
at most a torn last line, which is cut. Nothing here decides anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Literal

import msgspec

from agent_runtime.types import RolloutRequest
from rock_env.errors import InvalidArgument
from rock_env.foreign.budget import check_json, check_size
from rock_env.foreign.files import open_regular
from trainer.errors import RunFolderError
from trainer.files.appended import Appended
from trainer.files.folder import writing

__all__ = [
    "JOURNAL",
    "Audit",
    "BatchTally",
    "Entry",
    "Journal",
    "asked_for",
    "audit",
    "digest_of",
    "entries",
    "learned_batches",
]

JOURNAL = "journal.jsonl"
_LINE_BYTES = 1 << 26
_ID_BYTES = 72
"""Of memory that a rollout's id takes in a list."""


class BatchTally(msgspec.Struct, omit_defaults=True):
    """What a plan's batch needs beside the records of its rollouts."""

    rejected: int = 0
    """Of the records set aside: the first so many were rejected, the others are of flat groups."""
    flat_groups: int = 0
    extra_groups: int = 0
    troubled_share: float = 0.0
    tokens: int = 0
    duration_s: float = 0.0
    reward_metrics: dict[str, float] = {}


class Entry(msgspec.Struct, omit_defaults=True):
    """One line."""

    kind: Literal["planned", "further", "admitted", "finished", "formed", "consumed", "begun"]
    step: int
    """The plan, or the learning step that consumed a batch; of `begun` the last step that is done."""
    version: int = 0
    """The policy version that samples a plan."""
    digest: str = ""
    """SHA-256 of a plan's requests."""
    rollouts: list[str] = []
    """Ids: asked for by a plan, or in a batch that was consumed."""
    set_aside: list[str] = []
    """Ids that were rejected, or in groups that were replaced."""
    tally: BatchTally | None = None
    anchors: dict[str, tuple[str, int, int]] = {}
    """Of a stream's batch: by group the expert, the turn and the hinted actions of its anchor, for those that have one."""


def digest_of(requests: Sequence[RolloutRequest]) -> str:
    """Return the SHA-256 of a plan's requests: equal where all that determines its rollouts is."""
    return hashlib.sha256(msgspec.msgpack.encode(requests)).hexdigest()


def entries(path: Path) -> Iterator[Entry]:
    """Yield a journal's lines but a torn last one. Raise `OSError`, `InvalidArgument` for one before it that is none."""
    return (entry for entry, _ in _ending(path))


def _ending(path: Path) -> Iterator[tuple[Entry, int]]:
    """Yield the entries, each with the bytes up to its end."""
    end = 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), start=1):
            if not line.endswith(b"\n") and len(line) < _LINE_BYTES:
                return
            end += len(line)
            check_json(line, str(path))
            try:
                yield msgspec.json.decode(line, type=Entry), end
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidArgument(
                    f"{path} line {number} is no entry of a run's journal: {error}. Put the file back, or remove it: the "
                    "plans under way are then played again."
                ) from error


def learned_batches(folder: Path) -> dict[int, Entry]:
    """Return by step what a run learned, by the process that did it last; nothing without a journal. Raise as `entries`.

    The folder may be a stranger's: what is kept stays within the budget of records.
    """
    path = folder / JOURNAL
    found: dict[int, Entry] = {}
    newest: list[int] = []
    """The steps in `found`, negated: a heap."""
    taken = 0
    for entry, _ in _ending(path) if path.exists() else ():
        if entry.kind == "begun":
            while newest and -newest[0] > entry.step:
                found.pop(-heappop(newest), None)
        elif entry.kind == "consumed":
            taken += _ID_BYTES * (len(entry.rollouts) + len(entry.set_aside) + 4 * len(entry.anchors))
            check_size(taken, str(path))
            found[entry.step] = entry
            heappush(newest, -entry.step)
    return found


class Journal:
    """The journal of one folder. `close` it after `begin`."""

    def __init__(self, folder: Path, *, done: int | None) -> None:
        """Read it for a process that goes on after step `done`, or None for one that begins. Raise `RunFolderError`."""
        self.folder = folder.absolute()
        self._path = self.folder / JOURNAL
        self._whole_bytes = 0
        try:
            finished = self._of_finished(self._read(), -1 if done is None else done)
            self._open = {entry.step: entry for entry in finished}
        except (OSError, InvalidArgument) as error:
            raise RunFolderError(f"cannot read {self._path}: {error}") from error
        self._done = done or 0

    def begin(self, open_rollouts: Sequence[str] = ()) -> None:
        """Open it, to be written from now on; a stream goes on with these rollouts. Raise `RunFolderError`."""
        with writing("records", self.folder):
            self._file = Appended(self._path)
            self._file.cut(self._whole_bytes)
        self._write(Entry("begun", self._done, rollouts=list(open_rollouts)))

    def _read(self) -> Iterator[Entry]:
        for entry, end in _ending(self._path) if self._path.exists() else ():
            self._whole_bytes = end
            yield entry

    @staticmethod
    def _of_finished(found: Iterator[Entry], done: int) -> Iterator[Entry]:
        """Yield the plans that an earlier process finished with weights that the run still has, the last of each."""
        planned: dict[int, Entry] = {}
        for entry in found:
            if entry.step <= done:
                continue
            if entry.kind == "planned":
                planned[entry.step] = entry
            elif entry.kind == "finished":
                plan = planned.get(entry.step)
                if plan is not None and plan.digest == entry.digest and plan.version <= done:
                    yield msgspec.structs.replace(entry, version=plan.version)

    def _write(self, entry: Entry) -> None:
        with writing("records", self.folder):
            self._file.write(msgspec.json.encode(entry) + b"\n")

    def finished_before(
        self, step: int, version: int, requests: Sequence[RolloutRequest]
    ) -> BatchTally | None:
        """Return the tally of a plan that an earlier process finished; None where it is to be played."""
        entry = self._open.pop(step, None)
        if entry is None or entry.version != version or entry.digest != digest_of(requests):
            return None
        return entry.tally

    def kept(self) -> set[int]:
        """Return the plans whose records an earlier process finished and nobody consumed."""
        return set(self._open)

    def planned(self, step: int, version: int, requests: Sequence[RolloutRequest]) -> None:
        """Write that a plan was drawn. Raise `RunFolderError`, as all that write do."""
        ids = [request.id for request in requests]
        self._write(Entry("planned", step, version, digest_of(requests), ids))

    def further(self, step: int, requests: Sequence[RolloutRequest]) -> None:
        """Write that more was drawn for a plan, in place of groups without variance."""
        self._write(Entry("further", step, rollouts=[request.id for request in requests]))

    def finished(self, step: int, requests: Sequence[RolloutRequest], tally: BatchTally) -> None:
        """Write that a plan's rollouts are in, and on record."""
        self._write(Entry("finished", step, digest=digest_of(requests), tally=tally))

    def admitted(self, plan: int, version: int, rollouts: Sequence[str]) -> None:
        """Write that a stream's group was let in, with the newest version."""
        self._write(Entry("admitted", plan, version, rollouts=list(rollouts)))

    def came_in(self, plan: int, rollouts: Sequence[str]) -> None:
        """Write that a stream's group is in, and on record."""
        self._write(Entry("finished", plan, rollouts=list(rollouts)))

    def formed(self, step: int) -> None:
        """Write that a stream's batch is on record: a later process that goes on after its step knows what was let in."""
        self._write(Entry("formed", step))

    def consumed(
        self,
        step: int,
        rollouts: Sequence[str],
        set_aside: Sequence[str],
        anchors: Mapping[str, tuple[str, int, int]] | None = None,
    ) -> None:
        """Write that a step learned a batch; `anchors` are those of a stream's groups."""
        own = dict(anchors or {})
        self._write(Entry("consumed", step, rollouts=list(rollouts), set_aside=list(set_aside), anchors=own))

    def close(self) -> None:
        self._file.close()


class Audit(msgspec.Struct):
    """What became of the rollouts of a run."""

    consumed: int = 0
    set_aside: int = 0
    lost: list[str] = []
    """Planned for a step that was learned, and neither in its batch nor set aside; of a stream those that were let in before
    a checkpoint and that nobody knew of after it."""
    twice: list[str] = []
    """In more than one batch, or in a batch and set aside."""
    open: list[str] = []
    """Let in by a stream, and not yet in a batch or set aside."""


_AGAIN = re.compile(r"-r[0-9]+$")


class _LetIn:
    """The rollouts that a stream let in and no batch has ended: a few, however long the journal is."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        """Each with its number, in the order they were let in."""
        self._count = 0
        self._formed: dict[int, int] = {}
        """By step, how many had been let in when its batch was formed."""
        self._ended: dict[int, dict[str, int]] = {}
        """By step what its batches ended."""

    def add(self, rollouts: Iterable[str]) -> None:
        for one in rollouts:
            self.open.setdefault(one, self._count)
            self._count += 1

    def formed(self, step: int) -> None:
        self._formed[step] = self._count

    def consumed(self, entry: Entry) -> None:
        ids = map(asked_for, (*entry.rollouts, *entry.set_aside))
        ended = {one: self.open.pop(one) for one in ids if one in self.open}
        self._ended.setdefault(entry.step, {}).update(ended)

    def goes_on(self, step: int, known: Container[str]) -> list[str]:
        """Forget what later steps ended, and what is not known after a step that a process goes on from; return those that
        had been let in before its batch was formed."""
        for later in [each for each in self._ended if each > step]:
            self.open |= self._ended.pop(later)
        left = {one: number for one, number in self.open.items() if one not in known}
        self.open = {one: number for one, number in self.open.items() if one in known}
        before = self._formed.get(step, 0)
        return [one for one, number in left.items() if number < before]


def audit(found: Iterable[Entry]) -> Audit:
    """Return what became of every rollout. What a later process did again counts as it was done the last time."""
    planned: dict[int, list[str]] = {}
    consumed: dict[int, list[Entry]] = {}
    let_in, result = _LetIn(), Audit()
    for entry in found:
        if entry.kind == "begun":
            consumed = {step: own for step, own in consumed.items() if step <= entry.step}
            result.lost += let_in.goes_on(entry.step, set(entry.rollouts))
        elif entry.kind == "planned":
            planned[entry.step] = list(entry.rollouts)
        elif entry.kind == "further":
            planned[entry.step] += entry.rollouts
        elif entry.kind == "admitted":
            let_in.add(entry.rollouts)
        elif entry.kind == "formed":
            let_in.formed(entry.step)
        elif entry.kind == "consumed":
            consumed.setdefault(entry.step, []).append(entry)
            let_in.consumed(entry)
    came = set[str]()
    for step, batches in sorted(consumed.items()):
        aside = {asked_for(one) for entry in batches for one in entry.set_aside}
        for one in (one for entry in batches for one in entry.rollouts):
            if asked_for(one) in came:
                result.twice.append(one)
            came.add(asked_for(one))
        result.consumed += sum(len(entry.rollouts) for entry in batches)
        result.set_aside += sum(len(entry.set_aside) for entry in batches)
        result.lost += [one for one in planned.get(step, []) if one not in came and one not in aside]
    result.open = sorted(let_in.open, key=lambda one: let_in.open[one])
    return result


def asked_for(rollout: str) -> str:
    """Return the id that a plan asked for, of one that was sampled again in its place (`filtering.again`)."""
    return _AGAIN.sub("", rollout)
