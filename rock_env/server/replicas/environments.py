"""Environments that an operator pushed: every server of the store finds them in its own folder, under their names.

Made by `server/replicas/member`. The store has them; this server's processes read the folder of
`rock_env.tasksets.registered`. An environment that was registered on this machine, or is installed here, keeps its name.
"""

from __future__ import annotations

import logging

import msgspec

from rock_env import plugins
from rock_env.errors import RockError
from rock_env.store.postgres.listener import follow
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import ENVIRONMENTS
from rock_env.store.postgres.settings import StoredSettings
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from rock_env.threads import for_life

__all__ = ["SharedEnvs"]

log = logging.getLogger(__name__)


class SharedEnvs:
    """Satisfies `envs.shelf.EnvShelf`."""

    def __init__(self, store: PostgresStore) -> None:
        self._stored: StoredSettings[str] = StoredSettings(
            store, "rock_envs", "name", ("digest", "record", "tasks"), channel=ENVIRONMENTS
        )
        self._refused: dict[str, str] = {}
        """Digests of those that cannot be kept here, as was said once."""

    async def put(self, record: Registration, tasks: bytes) -> None:
        """Keep an environment at every server. Raise what `registered.check_shared` does, and `Unavailable`.

        Raise `Overtaken` where somebody else pushed one of this name at the same time.
        """
        await for_life(registered.check_shared, record, tasks)
        after = (record.digest, msgspec.json.encode(record), tasks)
        await self._stored.change(record.name, await self._stored.get(record.name), after)
        await self._take_over()

    async def remove(self, name: str) -> bool:
        """Forget an environment at every server; False where the store has none of this name."""
        found = await self._stored.get(name)
        await self._stored.change(name, found, None)
        await self._take_over()
        return found is not None

    async def follow(self) -> None:
        """Bring this server's folder up to date with each change, for as long as it runs."""
        await follow(self._stored.changed(), self._take_over, "environments")

    async def _take_over(self) -> None:
        records = {name: row[0] for name, row in (await self._stored.all("record")).items()}
        here = await for_life(_shared_here)
        for name in here.keys() - records.keys():
            await for_life(registered.forget_shared, name)
        for name, written in records.items():
            digest = ""
            try:
                digest = msgspec.json.decode(written, type=Registration).digest
                if digest in (here.get(name), self._refused.get(name)):
                    continue
                if name in plugins.names("ale.envs"):
                    raise msgspec.ValidationError("an environment of this name is installed here")
                found = await self._stored.get(name)
                if found is not None:
                    _, now, tasks = found
                    record = msgspec.json.decode(now, type=Registration)
                    await for_life(registered.keep_shared, record, tasks)
            except (RockError, msgspec.DecodeError) as error:
                self._refused[name] = digest
                log.warning("the environment %r of the store is not offered here: %s", name, error)


def _shared_here() -> dict[str, str]:
    """Return the digests of the environments that are here because the store has, or had, them."""
    found = {}
    for name in registered.shared_names():
        try:
            found[name] = registered.find(name).digest
        except RockError:  # damaged: taken over again
            found[name] = ""
    return found
