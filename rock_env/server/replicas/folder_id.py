"""The random id of a state folder, by which a store tells two folders of one node name apart.

Used by `server/replicas/sharing`. It is a file in the folder and moves with it.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from rock_env.errors import FailedPrecondition, InfraError
from rock_env.store.base import FOLDER_ID
from rock_env.store.whole_file import make_once

__all__ = ["folder_id"]

_KNOWN = re.compile(r"[0-9a-f]{32}")


def folder_id(folder: Path) -> str:
    """Return the id of a state folder; its first server makes it. Blocks.

    Raise `FailedPrecondition` for a damaged one, `InfraError` where it cannot be read or written.
    """
    path = folder / FOLDER_ID
    try:
        if not path.exists():
            make_once(path, f"{secrets.token_hex(16)}\n".encode())
        found = path.read_text(errors="replace").strip()
    except OSError as error:
        raise InfraError(
            f"the id of the state folder cannot be kept in {path}: {error.strerror}. Is it read-only?"
        ) from error
    if not _KNOWN.fullmatch(found):
        raise FailedPrecondition(
            f"the id of the state folder is damaged: got {found[:80]!r} in {path}, expected 32 characters of 0-9a-f. "
            "Restore it from a backup, or write the id there that the store's error names."
        )
    return found
