"""Where one server is among those that share its store, and what is said when it cannot be reached there."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from rock_env.errors import Unavailable
from rock_env.lifecycle import SandboxRecord
from rock_env.store.postgres.members import Member

__all__ = ["LEASE_S", "Seat", "new_id", "not_reached", "not_taken_up"]

LEASE_S = 10.0
"""How long a replica that says nothing counts as alive; it renews three times as often."""
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where one server is, for the others of its store."""

    own_id: str
    node: str
    folder: str
    """The id of its state folder; empty for a server that keeps no boxes beyond its own end."""
    address: str
    """Where the others reach it: a unix socket, or grpcs://host:port."""
    witnesses: Path
    """The folder of the locks by which those of one machine see each other live."""
    environments: str = ""
    """How the ids of its environments begin."""
    sites: frozenset[str] = frozenset()
    """Where the boxes of its backends are that keep nothing on its host."""
    lease_s: float = LEASE_S


def new_id(node: str) -> str:
    """Return an owner that nobody ever was."""
    return f"{node}:{secrets.token_hex(6)}"


def not_reached(member: Member) -> Unavailable:
    """Return the error for a call for a member that does not answer, though its lease has not ended yet."""
    return Unavailable(
        f"replica {member.id} of node {member.node!r}, which has the sandbox, cannot be reached at {member.address}. Ask "
        "again: another one takes over when its lease ends. If it goes on, is its folder or network reachable from here?",
        retry_after_s=_RETRY_AFTER_S,
    )


def not_taken_up(record: SandboxRecord) -> Unavailable:
    """Return the error for a call for a sandbox whose server is gone and that no server that lives can take up."""
    if record.site:
        return Unavailable(
            f"sandbox {record.id!r} is at {record.site!r}, and no server that reaches this runs now. Ask again; start one, "
            "or wait until its lease or lifetime ends it.",
            retry_after_s=_RETRY_AFTER_S,
        )
    return Unavailable(
        f"sandbox {record.id!r} is on node {record.node!r}, in the state folder {record.folder or 'unknown'!r}, and "
        "no server runs there now. Ask again; start one there, or wait until its lease or lifetime ends it.",
        retry_after_s=_RETRY_AFTER_S,
    )
