"""The secret that a server without a shared store derives its boxes' tokens from: a file in its state folder."""

from __future__ import annotations

import secrets
from pathlib import Path

from rock_env.errors import FailedPrecondition
from rock_env.store.whole_file import make_once

__all__ = ["kept_secret"]

_FILE = "guest-secret"
_BYTES = 32


def kept_secret(folder: Path) -> bytes:
    """Return the folder's secret; its first server makes it. Blocks. Raise `FailedPrecondition` for a damaged one."""
    path = folder / _FILE
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_once(path, secrets.token_bytes(_BYTES))
    found = path.read_bytes()
    if len(found) != _BYTES:
        raise FailedPrecondition(
            f"the secret of the kubernetes backend is damaged: {path} has {len(found)} bytes, expected {_BYTES}. Restore it "
            "from a backup; without it no server reaches the sandboxes that run, and their pods must be deleted by hand."
        )
    return found
