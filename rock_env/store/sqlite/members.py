"""The server of the SQLite store: the one that has the file open, by its node and state folder.

The row stays when the server ends, so that the next one can tell whether the boxes of the records are in its folder.
"""

from __future__ import annotations

import sqlite3
import time

import msgspec

from rock_env.lifecycle import SandboxRecord, hard_deadline
from rock_env.store.base import other_folder

__all__ = ["TABLES", "register"]

TABLES = ("CREATE TABLE members (node TEXT NOT NULL, folder TEXT NOT NULL)",)

_decoder = msgspec.json.Decoder(SandboxRecord)


def register(database: sqlite3.Connection, node: str, folder: str) -> None:
    """Make this server the store's. Raise `FailedPrecondition` if live boxes are in another state folder."""
    # All are read, whoever was here before: a file that turns out to be damaged stays as it is.
    rows = database.execute("SELECT record FROM sandboxes WHERE state != 'DELETED'")
    live = [
        it.id
        for it in (_decoder.decode(row[0]) for row in rows)
        if it.lasting and hard_deadline(it).at > time.time()
    ]
    former = database.execute("SELECT node, folder FROM members").fetchone()
    if former == (node, folder):
        return
    if former is not None and former[1] not in ("", folder) and live:
        because = f"{len(live)} live sandboxes are there, such as {live[0]}"
        raise other_folder(former[0], got=folder, expected=former[1], because=because, instead="--store")
    database.execute("DELETE FROM members")
    database.execute("INSERT INTO members VALUES (?, ?)", (node, folder))
