"""Copies of checkpoints as they lie in a bucket, and how a run is fetched from them, to go on with `--resume`.

`copies/step-000012.json`, written last, is the `digests.json` of all that belongs to a copy. Files lie as `objects/DIGEST`:
what copies share is there once. A bucket may be a stranger's: paths are checked, sizes are bounds.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainer.checkpoint import number_of
from trainer.errors import CheckpointError, RunFolderError
from trainer.files import digests
from trainer.files.bucket import Bucket
from trainer.files.folder import fill_whole, writing

__all__ = ["COPY", "FILES", "OBJECT", "contents", "fetch", "steps_in"]

COPY, OBJECT = "copies/{}.json", "objects/{}"
FILES = ("journal.jsonl", "metrics.jsonl", "config.toml", "lineage.json", "own.json")
"""Of a copy, beside those in folders."""
_PATH = re.compile(r"(checkpoints|trajectories|waiting|rewards)(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){1,4}")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_MANIFEST_BYTES = 16 << 20


def steps_in(bucket: Bucket) -> dict[str, int]:
    """Return the checkpoints that have copies, with their numbers, from the newest to the oldest. Raise `CopyError`."""
    steps = [name.removesuffix(".json") for name in bucket.names(str(Path(COPY).parent))]
    found = {step: number for step in steps if (number := number_of(step)) is not None}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def contents(bucket: Bucket, step: str, folder: Path) -> dict[str, digests.Digest]:
    """Put a copy's manifest into a folder and return what it names. Raise `CheckpointError` for a bad one, `CopyError`."""
    (folder / digests.FILE).write_bytes(b"".join(bucket.read(COPY.format(step), _MANIFEST_BYTES)))
    sealed = digests.read(folder)
    found = sealed.files if sealed else {}
    for path, each in found.items():
        is_file = {*map(str, Path(path).parents)}.isdisjoint(found)
        if not (is_file and (path in FILES or _PATH.fullmatch(path)) and _DIGEST.fullmatch(each.blake2b)):
            raise CheckpointError(f"it names {path[:200]!r}, expected files of a run and their digests")
    return found


def fetch(place: str, folder: Path, say: Callable[[str], None]) -> str:
    """Fill a folder that is empty or not there from the newest whole copy, and return its checkpoint's name.

    `say` is told of damaged ones. Raise `CheckpointError` where none is whole, `CopyError`, `ConfigError`, `RunFolderError`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder} is not empty and holds no run: name another one with --run.")
    bucket, problems = Bucket(place), list[str]()
    for step in steps_in(bucket):
        try:
            with writing("a run's copy", folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
                fill_whole(folder, partial(_take, bucket, step))
        except CheckpointError as error:
            problems.append(f"the copy of {step} is damaged: {error}")
        else:
            for problem in problems:
                say(f"note: the run goes on from {step}, because {problem}")
            return step
        finally:
            shutil.rmtree(folder.with_name(f".{folder.name}.tmp"), ignore_errors=True)
    why = "; ".join(problems[:3]) or f"expected those of a run with checkpoint.copy_to={place}"
    raise CheckpointError(f"no whole copy of a run is in {place}: {why}. Restore one, or begin another run.")


def _take(bucket: Bucket, step: str, folder: Path) -> None:
    for path, each in contents(bucket, step, folder).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("xb") as file:
            file.writelines(bucket.read(OBJECT.format(each.blake2b), each.bytes))
    digests.check(folder)
    (folder / digests.FILE).unlink()
    if not digests.check(folder / "checkpoints" / step, run=folder):
        raise CheckpointError(f"it holds no checkpoints/{step}/{digests.FILE}")
