"""Gymnasium's environments as `gym:ID`: actions and observations as JSON. Imported where one of them runs."""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points

from rock_env.env import Info, StepResult
from rock_env.games.game import Game, scalars
from rock_env.games.spaces import NoAction, encoded, offered, parsed
from rock_env.spec import TaskSpec
from sandboxes.libraries.hosting import Library, LibraryParams

__all__ = ["LIBRARY", "GymParams"]

_MARKED = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m")


class GymParams(LibraryParams):
    pictures: bool = False
    """Add Gymnasium's picture in text to each observation, where it has one; what it colours stands in brackets."""


class _GymGame:
    def __init__(self, env_id: str, params: GymParams) -> None:
        import gymnasium

        arguments = {"disable_env_checker": True, **params.given()}
        self._env = gymnasium.make(env_id, **arguments)
        self._pictures = params.pictures and "ansi" in self._env.metadata.get("render_modes", ())
        if self._pictures:
            self._env = gymnasium.make(env_id, **arguments, render_mode="ansi")
        threshold = self._env.spec.reward_threshold if self._env.spec is not None else None
        self._threshold = None if threshold is None else float(threshold)

    def reset(self, seed: int) -> tuple[str, Info]:
        self._env.action_space.seed(seed)
        observation, info = self._env.reset(seed=seed)
        return f"{offered(self._env.action_space)}{self._text(observation)}", scalars(info)

    def step(self, action: str) -> StepResult:
        try:
            given = parsed(self._env.action_space, action)
        except NoAction as error:
            return StepResult(str(error), info={"illegal": True})
        observation, reward, terminated, truncated, info = self._env.step(given)
        return StepResult(
            self._text(observation), float(reward), bool(terminated), bool(truncated), scalars(info)
        )

    def reseed(self, seed: int) -> None:
        from gymnasium.utils.seeding import np_random

        self._env.unwrapped.np_random = np_random(seed)[0]

    def passed(self, total: float) -> bool:
        return total > 0 if self._threshold is None else total >= self._threshold

    def action(self) -> str:
        """Return a random action."""
        return encoded(self._env.action_space.sample())

    def close(self) -> None:
        self._env.close()

    def _text(self, observation: object) -> str:
        text = encoded(observation)
        if not self._pictures:
            return text
        picture = _MARKED.sub(r"[\1]", str(self._env.render()))
        return f"{text}\n{picture.strip()}"


@cache
def _plugins() -> None:
    """Load the entry points `gymnasium.envs`, which Gymnasium itself left to others with version 1.0.

    One that does not load is left out: its ids are unknown, and those of others are not.
    """
    from gymnasium.envs import registration

    for point in entry_points(group="gymnasium.envs"):
        outside = registration.current_namespace
        with suppress(Exception):  # named boundary: a package's own code
            registration.current_namespace = None if point.name.startswith("__") else point.name
            found = point.load()
            if callable(found):
                found()
        registration.current_namespace = outside


def _bring(env_id: str) -> str:
    """Import the module of `module:ID`, which registers its ids; an id of another package is left as unknown as it was."""
    module, _, name = env_id.rpartition(":")
    if not module:
        return name
    importlib.import_module(module)
    import gymnasium

    spec = gymnasium.registry.get(name)
    entry = spec.entry_point if spec else None
    home = entry if isinstance(entry, str) else getattr(entry, "__module__", module)
    return name if re.split("[.:]", home)[0] == module.partition(".")[0] else env_id


def _registered() -> tuple[str, ...]:
    import gymnasium

    _plugins()
    return tuple(sorted(gymnasium.registry))


def _prepare(env_id: str) -> None:
    import gymnasium

    place = gymnasium.registry[env_id].entry_point
    if isinstance(place, str):
        importlib.import_module(place.partition(":")[0])
    elif (
        callable(place) and place.__module__ == "gymnasium.envs"
    ):  # in place of one that has moved: it says where to
        place()


def _game(env_id: str, params: GymParams, task: TaskSpec) -> Game:
    return _GymGame(env_id, params)


LIBRARY = Library(
    name="gym",
    package="gymnasium",
    params=GymParams,
    game=_game,
    known=_registered,
    prepare=_prepare,
    bring=_bring,
    elsewhere=" What a package registers as it is imported is gym:MODULE:ID, as gym:minigrid:MiniGrid-Empty-5x5-v0.",
    summary="{id} of the library Gymnasium, with actions and observations as JSON.",
    instruction="Play {id} of Gymnasium. The first observation says what actions there are; each answer is one action as "
    "JSON and nothing else, and each observation is JSON.",
)
