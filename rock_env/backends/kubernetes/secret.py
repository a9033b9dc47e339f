"""The secret that a server without a shared store derives its boxes' tokens from: a file in its state folder."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from rock_env.errors import FailedPrecondition
from rock_env.store.whole_file import make_private_file

__all__ = ["kept_secret"]

_FILE = "guest-secret"
_BYTES = 32


def kept_secret(folder: Path) -> bytes:
    """Return the folder's secret; its first server makes it. Blocks. Raise `FailedPrecondition` for a damaged one."""
    path = folder / _FILE
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = folder / f".{_FILE}.{secrets.token_hex(4)}"
        try:
            make_private_file(beside, secrets.token_bytes(_BYTES))
            with suppress(FileExistsError):  # another server was faster
                os.link(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    found = path.read_bytes()
    if len(found) != _BYTES:
        raise FailedPrecondition(
            f"the secret of the kubernetes backend is damaged: {path} has {len(found)} bytes, expected {_BYTES}. Restore it "
            "from a backup; without it no server reaches the sandboxes that run, and their pods must be deleted by hand."
        )
    return found
