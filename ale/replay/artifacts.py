"""`ale replay artifact`: a file that an environment attached, out of the folder beside the records.

What it holds is a stranger's: it is written to the file that is named, and never opened.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ale.errors import RecordError
from ale.replay.places import segments
from ale.terminal import stdout
from rock_env.foreign import budget

__all__ = ["artifact_command"]

_BEGINNING = re.compile(r"[0-9a-f]{6,64}")


def artifact_command(where: str, digest: str, file: Path) -> None:
    """Write the artifact of this digest, or of its beginning, to a new file. Raise `RecordError`."""
    content = _read(_found(where, digest))
    try:
        with file.open("xb") as out:
            out.write(content)
    except OSError as error:
        raise RecordError(
            f"cannot write {file}: {error.strerror}. Name a file that is not there yet."
        ) from error
    stdout().print(f"{len(content)} bytes in {file}")


def _found(where: str, digest: str) -> Path:
    if not _BEGINNING.fullmatch(digest):
        raise RecordError(
            f"{digest[:80]!r} is no digest: expected 6 to 64 hexadecimal digits, as `ale replay show` names artifacts."
        )
    folders = sorted({path.parent / "artifacts" for path in segments(where)})
    found = [path for folder in folders for path in sorted(folder.glob(f"{digest}*")) if len(path.name) == 64]
    if not found:
        raise RecordError(
            f"no artifact {digest} beside the records of {where!r}: looked in {', '.join(map(str, folders))}. Artifacts are "
            "kept where rollouts are played with `ale train` or `ale rollout --out`."
        )
    if len({path.name for path in found}) > 1:
        raise RecordError(f"{len(found)} artifacts begin with {digest}: give more of the digest.")
    return found[0]


def _read(path: Path) -> bytes:
    try:
        content = budget.read_whole(path, f"the artifact {path}")
    except OSError as error:
        raise RecordError(f"cannot read the artifact {path}: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != path.name:
        raise RecordError(f"the artifact {path} is damaged: its content has another digest than its name.")
    return content
