"""What a run's model was made of: the run before it, the weights it began with, the trajectories it imitated.

Written by the run into `lineage.json`, read by its descendants and by `ale lineage`. Digests are of file contents, so that
whoever has the files can check the story; nothing here decides what a run does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from rock_env.store.whole_file import write_whole
from trainer.config import TrainConfig
from trainer.errors import CheckpointError, RunFolderError
from trainer.files.digests import digest_of, digest_of_text
from trainer.files.folder import writing

__all__ = [
    "CONFIG",
    "FILE",
    "MODEL",
    "ExpertRecord",
    "Lineage",
    "Parent",
    "Source",
    "begin",
    "digest_of",
    "digest_of_text",
    "read",
    "read_of",
    "write",
]

FILE = "lineage.json"
MODEL = "model"
"""Folder of a run in which its trained model lies."""
CONFIG = "config.toml"
"""File of a run in which its settings stand."""
_T = TypeVar("_T")


class Parent(msgspec.Struct, frozen=True):
    """The run whose model this one began with."""

    run: str
    """Its folder, as it was given."""
    algo: str
    steps: int
    """How many steps it had learned."""
    config_digest: str
    lineage_digest: str
    """Of its own `lineage.json`; empty where it has none."""


class Source(msgspec.Struct, frozen=True):
    """Where experts came from, and why trajectories there were not taken."""

    path: str
    """A file, or `oracle of ENV@VERSION`."""
    digest: str
    """Of the file; empty for the oracle."""
    taken: int
    skipped: dict[str, int] = {}


class ExpertRecord(msgspec.Struct, frozen=True):
    """One expert trajectory."""

    id: str
    task_id: str
    source: str
    """The `path` of its `Source`."""
    source_id: str
    """Its id there."""
    digest: str
    """Of the record as it was there."""
    turns: int
    faulty_turns: int
    """Turns that are context only: a failed call, or an edit taken back later."""
    held_out: bool
    origin: str = ""
    """Who acted, a `trainer.rollout.starts.Origin`; empty in files of before."""


class Lineage(msgspec.Struct):
    """`lineage.json` of a run folder."""

    env: str
    """`name@version`."""
    model: str
    """The model that the run began with, as `--model` names it."""
    model_digest: str
    """Of that model's folder; empty for one that is built in or has no folder here."""
    parent: Parent | None = None
    sources: list[Source] = []
    experts: list[ExpertRecord] = []
    experts_digest: str = ""
    """Of all experts' digests, in order."""
    steps: int = 0
    final_digest: str = ""
    """Of the exported model's folder; empty until the run has ended."""


class _Ended(msgspec.Struct):
    """What of a run's `summary.json` matters to its descendants."""

    algo: str
    steps: int


def begin(config: TrainConfig, env: str) -> Lineage:
    """Return what is known before anything ran. Raise `RunFolderError` for a parent that cannot be read."""
    folder = Path(config.model)
    is_folder = folder.is_dir()
    return Lineage(
        env=env,
        model=config.model,
        model_digest=digest_of(folder) if is_folder else "",
        parent=_parent(folder.parent) if is_folder and folder.name == MODEL else None,
    )


def read(run: Path) -> Lineage | None:
    """Return the run's lineage, None where it has none. Raise `RunFolderError` for a damaged one."""
    return _decoded(run / FILE, Lineage) if (run / FILE).is_file() else None


def read_of(folder: Path, env: str) -> Lineage | None:
    """Return what `read` does. Raise `CheckpointError` where the run began in other environments than `env`, their key."""
    begun = read(folder)
    if begun is not None and begun.env != env:
        raise CheckpointError(
            f"the run began in {begun.env}, but {env} is installed: its experts and the successes it kept "
            "may mean something else here. Install the version it began with, or start a new run."
        )
    return begun


def write(run: Path, lineage: Lineage) -> None:
    """Replace `lineage.json`. Raise `RunFolderError`."""
    content = msgspec.json.format(msgspec.json.encode(lineage), indent=2) + b"\n"
    with writing(FILE, run):
        write_whole(run / FILE, lambda beside: beside.write_bytes(content))


def _parent(run: Path) -> Parent | None:
    """Return what to remember of the run in this folder; None where there is no run that ended."""
    if not (run / CONFIG).is_file() or not (run / "summary.json").is_file():
        return None
    ended = _decoded(run / "summary.json", _Ended)
    return Parent(
        run=str(run),
        algo=ended.algo,
        steps=ended.steps,
        config_digest=digest_of(run / CONFIG),
        lineage_digest=digest_of(run / FILE) if (run / FILE).is_file() else "",
    )


def _decoded(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(budget.read_json(path, str(path)), type=kind)
    except (OSError, InvalidArgument, msgspec.MsgspecError, RecursionError) as error:
        raise RunFolderError(f"cannot read {path}: {error}. Restore the file, or remove it.") from error
