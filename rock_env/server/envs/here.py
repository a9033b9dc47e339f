"""Environments in this very process, for the one who debugs them: no worker, no wire, and no time limit.

The journal, the replay of prefixes and the sandbox are those of a server; `rock_env.server.app.in_process` has the rest of
one.
"""

from __future__ import annotations

from typing import Any

from rock_env.env_workers.frames import Kind
from rock_env.env_workers.here import HereEnv, HereGames
from rock_env.errors import plugin_call
from rock_env.server.envs.core import EnvServiceCore
from rock_env.server.envs.rules import OwnRules
from rock_env.server.envs.sandboxed import SandboxedEnv

__all__ = ["HereRock"]

_NO_LIMIT_S = 1e9


class HereRock:
    """Makes environments in this process. `core` hosts the sandboxes of those that have one."""

    def __init__(self, core: EnvServiceCore) -> None:
        self._core = core
        self._games = HereGames(core.catalog)

    async def make(self, env: str, params_json: str) -> HereEnv:
        """Make an environment. Raise `RockError`."""
        with plugin_call(f"making environment {env}"):
            catalog = self._core.catalog
            spec = catalog.spec(env)
            if spec.sandbox is None:
                return await self._games.make(env, params_json)
            arguments = catalog.resolve(env, params_json)
        rules = OwnRules(spec, catalog.params(spec.name, arguments), catalog)
        return _of_rules(
            SandboxedEnv(
                self._core.new_id(),
                spec=spec,
                rules=rules,
                boxes=self._core.boxes,
                room=self._core.artifacts,
            ),
            rules,
        )


def _of_rules(sandboxed: SandboxedEnv, rules: OwnRules) -> HereEnv:
    async def call(kind: Kind, request: Any) -> Any:
        return await sandboxed.call(kind, request, timeout_s=_NO_LIMIT_S)

    return HereEnv(rules.plugin, sandboxed.spec.version, call=call, close=sandboxed.close)
