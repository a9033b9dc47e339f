"""Which servers share a PostgreSQL store, and who of them lives: a row with a lease for each.

Used by `server/replicas/member`. All times are the database's own, so the servers' clocks need not agree. Every change of
who is there is notified.

A member that has a row lives, however late its lease. Its row is removed by a server that has renewed its own lease all
the time: what it could do itself the other could have done, too. So no time in which the database was away counts as
silence (ADR 0070).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from rock_env.lifecycle import SandboxRecord, SandboxState, hard_deadline
from rock_env.store.base import Query, other_folder
from rock_env.store.postgres.records import PostgresStore, decoded
from rock_env.store.postgres.schema import JOINING, MEMBERS, find_sql

__all__ = ["Member", "Members"]

_MOST_GAP = 0.5
"""Of a lease: after so long without an answer the database counts as away. A server asks three times in a lease, and one
that was kept from it for less has renewed its lease before that ends."""
_NOTIFY = f"SELECT count(*) FROM changed, LATERAL pg_notify('{MEMBERS}', changed.id)"


@dataclass(frozen=True, slots=True)
class Member:
    """One server that is thought to live."""

    id: str
    node: str
    """Where its boxes are: only a server there can take them up."""
    address: str
    """Where other servers reach it."""
    draining: bool
    expires_in_s: float
    """How long its lease lasts still; negative for one that is overdue."""
    folder: str
    """The id of the state folder its boxes are in; empty for a server of an earlier release."""
    environments: str
    """How the ids of its environments begin; empty for a server of an earlier release."""
    sites: frozenset[str] = frozenset()
    """Where the boxes are that it can take up whichever node their server was on."""

    def reaches(self, record: SandboxRecord) -> bool:
        """Return whether this server can take the box up: it is at a site of its own, or where the server is."""
        if record.site:
            return record.site in self.sites
        here = not record.folder or not self.folder or record.folder == self.folder
        return here and record.node in ("", self.node)


class Members:
    """The rows of one store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._since = self._answered_at = -math.inf
        """By the event loop: when the present run of answered renewals began, and when the last one was answered."""
        self._lease_s = 0.0
        self._away_s = 0.0

    def away_s(self) -> float:
        """Return for how long in all, since this server joined, it could not renew its lease."""
        gap_s = asyncio.get_running_loop().time() - self._answered_at
        return self._away_s + (gap_s if _MOST_GAP * self._lease_s < gap_s < math.inf else 0.0)

    def buried_in_s(self, member: Member) -> float:
        """Return when, from now, this server declares the member dead if it says nothing and the database answers."""
        return max(member.expires_in_s, self._lease_s - self._watched_s(), 0.0)

    def _watched_s(self) -> float:
        """Return for how long by now, without a gap, this server could renew its lease whenever it was to."""
        now = asyncio.get_running_loop().time()
        return 0.0 if now - self._answered_at > _MOST_GAP * self._lease_s else now - self._since

    def _answered(self, lease_s: float) -> None:
        self._away_s = self.away_s()
        now = asyncio.get_running_loop().time()
        if self._watched_s() == 0.0:
            self._since = now
        self._answered_at, self._lease_s = now, lease_s

    async def secret(self) -> bytes:
        """Return what all servers of the store know and nobody else."""
        return bytes((await self._store.fetch("SELECT secret FROM rock_secret"))[0][0])

    async def authority(self) -> tuple[bytes, bytes] | None:
        """Return the key and certificate of who vouches for the servers of the store; None: there is none yet."""
        ((key, certificate),) = await self._store.fetch("SELECT authority_key, authority FROM rock_secret")
        return None if key is None else (bytes(key), bytes(certificate))

    async def keep_authority(self, key: bytes, certificate: bytes) -> tuple[bytes, bytes]:
        """Let this be the store's authority, unless another server was faster; return the one that is."""
        await self._store.fetch(
            "UPDATE rock_secret SET authority_key = $1, authority = $2 WHERE authority_key IS NULL RETURNING 1",
            key,
            certificate,
        )
        kept = await self.authority()
        assert kept is not None  # it was written just now, by whomever
        return kept

    async def join(
        self,
        member_id: str,
        *,
        node: str,
        folder: str,
        address: str,
        environments: str = "",
        sites: Collection[str] = (),
        lease_s: float,
    ) -> None:
        """Become a member for `lease_s` from now.

        Raise `FailedPrecondition`, nothing changed, if another state folder is the node's: that of a member that
        lives, or one with boxes in it that may live.
        """

        async def act(connection: Any) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", JOINING)
            await _check_folder(connection, node, folder, lease_s)
            await connection.execute(
                "WITH changed AS (INSERT INTO rock_replicas "
                "(id, node, folder, address, environments, lease_expires_at, sites) "
                "VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6, $7) ON CONFLICT (id) DO UPDATE "
                f"SET lease_expires_at = clock_timestamp() + $6 RETURNING id) {_NOTIFY}",
                member_id,
                node,
                folder,
                address,
                environments,
                timedelta(seconds=lease_s),
                sorted(sites),
            )
            await connection.execute(
                "DELETE FROM rock_claims c WHERE NOT EXISTS "
                "(SELECT FROM rock_replicas r WHERE r.environments = c.environments)"
            )

        await self._store.transact(act)
        self._answered(lease_s)

    async def renew(self, member_id: str, *, lease_s: float) -> bool:
        """Remain a member for `lease_s` from now; return False if one has been declared dead."""
        renewed = await self._store.fetch(
            "UPDATE rock_replicas SET lease_expires_at = clock_timestamp() + $2 WHERE id = $1 RETURNING id",
            member_id,
            timedelta(seconds=lease_s),
        )
        self._answered(lease_s)
        return bool(renewed)

    async def drain(self, member_id: str) -> None:
        """Say that this server takes up nothing any more."""
        await self._store.fetch(
            f"WITH changed AS (UPDATE rock_replicas SET draining = true WHERE id = $1 RETURNING id) {_NOTIFY}",
            member_id,
        )

    async def leave(self, member_id: str) -> None:
        """Be no member any more: what it still owns is anybody's."""
        await self._store.fetch(
            f"WITH changed AS (DELETE FROM rock_replicas WHERE id = $1 RETURNING id) {_NOTIFY}", member_id
        )

    async def bury(self) -> None:
        """Declare dead whose lease is over, if this server has watched for as long as a lease lasts."""
        # Two steps: what is over must be so while the database answers, not once it has come back.
        over = await self._store.fetch(
            "SELECT id, lease_expires_at FROM rock_replicas WHERE lease_expires_at <= clock_timestamp()"
        )
        if over and self._watched_s() >= self._lease_s:
            await self._store.fetch(
                "WITH changed AS (DELETE FROM rock_replicas r USING unnest($1::text[], $2::timestamptz[]) AS seen (id, at) "
                f"WHERE r.id = seen.id AND r.lease_expires_at = seen.at RETURNING r.id) {_NOTIFY}",
                *map(list, zip(*over, strict=True)),
            )

    async def all(self) -> dict[str, Member]:
        """Return the members by id."""
        rows = await self._store.fetch(
            "SELECT id, node, address, draining, extract(epoch FROM lease_expires_at - clock_timestamp())::float, "
            "folder, environments, sites FROM rock_replicas ORDER BY id"
        )
        return {row[0]: replace(Member(*row[:7]), sites=frozenset(row[7])) for row in rows}

    async def claim(self, keys: Collection[bytes], environments: str) -> dict[bytes, str]:
        """Return for each key of a Make whose environment it is: that of the first member to claim it that lives."""
        rows = await self._store.fetch(
            "INSERT INTO rock_claims (key, environments) SELECT unnest($1::bytea[]), $2 ON CONFLICT (key) DO UPDATE "
            "SET environments = CASE WHEN EXISTS (SELECT FROM rock_replicas r WHERE r.environments = "
            "rock_claims.environments) THEN rock_claims.environments ELSE excluded.environments END "
            "RETURNING key, environments",
            sorted(set(keys)),  # in one order, so that two servers do not wait for each other
            environments,
        )
        return {bytes(row[0]): row[1] for row in rows}

    async def unclaim(self, keys: Collection[bytes], environments: str) -> None:
        """Forget the keys of environments that are closed."""
        await self._store.fetch(
            "DELETE FROM rock_claims WHERE key = ANY ($1::bytea[]) AND environments = $2",
            sorted(set(keys)),
            environments,
        )

    def listening(self) -> AbstractContextManager[asyncio.Event]:
        """Yield an event that is set whenever the members may have changed."""
        return self._store.listener.listening(MEMBERS)


async def _check_folder(connection: Any, node: str, folder: str, lease_s: float) -> None:
    """Raise `FailedPrecondition` if another state folder than this one is the node's."""
    if not folder:  # a server without one keeps no boxes
        return
    members = await connection.fetch(
        "SELECT id, folder FROM rock_replicas WHERE node = $1 AND folder NOT IN ('', $2) "
        "AND greatest(lease_expires_at, pg_postmaster_start_time() + $3) > clock_timestamp() ORDER BY id LIMIT 1",
        node,
        folder,
        timedelta(seconds=lease_s),
    )
    if members:
        raise other_folder(
            node, got=folder, expected=members[0][1], because=f"server {members[0][0]} lives there"
        )
    statement, values = find_sql(Query(states=frozenset(SandboxState) - {SandboxState.DELETED}))
    boxes = [
        it
        for it in map(decoded, await connection.fetch(statement, *values))
        if it.node == node
        and it.folder not in ("", folder)
        and not it.site
        # Others have ended with their server, or by themselves.
        and it.lasting
        and hard_deadline(it).at > time.time()
    ]
    if boxes:
        raise other_folder(
            node,
            got=folder,
            expected=boxes[0].folder,
            because=f"{len(boxes)} live sandboxes are there, such as {boxes[0].id}",
        )
