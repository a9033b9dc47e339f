"""Every installed environment under GEM's names: `import rock_env.gem; gem.make("rock:frozen_lake", size=4)`.

For code written against GEM. Importing this module registers; the first `make` starts the embedded server. Unlike
GEM's own base class, `reset(seed)` leaves the global random generators alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gem.core import Env
from gem.envs import registration

from rock_env import plugins
from rock_env.client.sync import SyncEnv, make
from rock_env.env import Scalar

__all__ = ["RockGemEnv", "register"]


class RockGemEnv(Env):  # type: ignore[misc]  # gem is not typed
    """An environment as a `gem.Env`. As in GEM's own, the first observation opens with the instruction."""

    def __init__(
        self, env: str, *, seed: int | None = None, hosted: SyncEnv | None = None, **params: Any
    ) -> None:
        super().__init__()
        self._name = env
        self._seed = seed  # GEM's vector environments pass one; it counts for the first reset
        self._hosted = hosted if hosted is not None else make(env, **params)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Scalar]]:
        """Start a train task chosen by `seed`; return (instruction and observation, info)."""
        first, self._seed = self._seed, None
        observation, info = self._hosted.reset(first if seed is None else seed)
        return f"{info['instruction']}\n\n{observation}", info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Scalar]]:
        """Apply one action."""
        return self._hosted.step(action)

    def sample_random_action(self) -> str:
        """Refuse, see `SyncEnv.sample_random_action`."""
        return self._hosted.sample_random_action()

    def spawn(self, same_state: bool = False, **kwargs: Any) -> RockGemEnv:
        """Make another one with the same arguments, or with the same state."""
        return RockGemEnv(self._name, hosted=self._hosted.spawn(same_state, **kwargs))

    def close(self) -> None:
        """Free the environment."""
        self._hosted.close()


def register() -> tuple[str, ...]:
    """Put `rock:<name>` for each environment into GEM's registry and return the names. Idempotent."""
    names = tuple(f"rock:{name}" for name in plugins.env_names())
    for name in names:
        if name not in registration.ENV_REGISTRY:
            registration.register(name, partial(RockGemEnv, name.removeprefix("rock:")))
    return names


register()
