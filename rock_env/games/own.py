"""A class with `reset` and `step` as an environment: `class_env` fills in all that an `EnvSpec` has beside them.

The spec travels by value to the processes that run it. The class itself is made and called in the workers that run
environments, and in the trainer's for its `expert`, as with any `EnvSpec`.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import create_model

from rock_env.env import Env, Info, Oracle, StepResult
from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.games.game import GameEnv, SeedTasks, random_player, scalars
from rock_env.games.spaces import NoAction, encoded, offered, parsed
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

__all__ = ["ClassParams", "class_env", "instruction_of"]

_PASS = 1.0
_HINT = ': an action that makes no sense is a turn, such as one with info {"illegal": True}'
_OURS = ("reset", "step", "evaluate", "snapshot", "restore", "reseed", "close")
"""The methods of `rock_env.env.Env`: a class with all of them is used as it is."""


class ClassParams(EnvParams):
    """Base of a class's arguments: its constructor's parameters that have a plain default."""


def class_env(cls: type, name: str) -> EnvSpec:
    """Return the environment that a class is. Raise `InvalidArgument` where it is none.

    `reset(seed=...)` returns an observation, or it and an info; `step(action)` the five values of Gymnasium and GEM, or a
    `StepResult`. A class with all methods of `rock_env.env.Env` is used as it is. Optional: `instruction` (else the
    docstring), `reward_threshold` (the return that is a success, else 1), `version`, `expert(observation)` (the action of a
    reference policy) and `actions`, `action_space` or `sample_random_action()`, which say what actions look like.
    """
    missing = [method for method in ("reset", "step") if not callable(getattr(cls, method, None))]
    if missing:
        raise InvalidArgument(
            f"the class {cls.__qualname__} is no environment: got no {' and no '.join(missing)}, expected reset(seed=...) "
            "-> (observation, info) and step(action) -> (observation, reward, terminated, truncated, info)."
        )
    instruction = instruction_of(cls)
    summary = instruction.partition("\n")[0] or cls.__qualname__
    offers = any(hasattr(cls, each) for each in ("actions", "action_space", "sample_random_action"))
    players: dict[str, Any] = {}
    if offers or _may_have_space(cls):
        players["explorer"] = partial(_random_player, cls, name)
    if callable(getattr(cls, "expert", None)):
        players["oracle"] = partial(_expert, cls, name)
    return EnvSpec(
        name=name,
        version=str(getattr(cls, "version", "1")),
        summary=summary,
        params=_params_of(cls),
        factory=partial(_make, cls, name),
        tasks=partial(_tasks, instruction),
        **players,
    )


def instruction_of(cls: type) -> str:
    """Return what the agent is told: the class's `instruction`, else its own docstring."""
    return inspect.cleandoc(str(getattr(cls, "instruction", None) or cls.__doc__ or ""))


def _may_have_space(cls: type) -> bool:
    """Return whether instances may have an action space, which Gymnasium's environments make as they are constructed."""
    return any(base.__module__.startswith("gymnasium.") for base in cls.__mro__)


def _params_of(cls: type) -> type[ClassParams]:
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            raise InvalidArgument(
                f"{cls.__qualname__}() needs {parameter.name!r}, and training makes it without arguments: give "
                f"{parameter.name} a default, such as `{parameter.name}=4`. --env-arg {parameter.name}=... then sets it."
            )
        if isinstance(parameter.default, bool | int | float | str):
            fields[parameter.name] = (type(parameter.default), parameter.default)
    return create_model(f"{cls.__name__}Params", __base__=ClassParams, __module__=__name__, **fields)


def _tasks(instruction: str, params: EnvParams) -> SeedTasks:
    return SeedTasks(instruction)


def _make(cls: type, name: str, params: EnvParams) -> Env:
    if all(callable(getattr(cls, method, None)) for method in _OURS):
        made: Env = cls(**params.model_dump())
        return made
    return GameEnv(name, partial(_ClassGame, cls, name, params))


def _random_player(cls: type, name: str, params: EnvParams, task: TaskSpec) -> Oracle:
    return random_player(name, partial(_ClassGame, cls, name, params, task), task)


def _expert(cls: type, name: str, params: EnvParams, task: TaskSpec) -> Oracle:
    """Return what the class's `expert` does: it is asked in a game of its own, which takes the same actions."""
    played = GameEnv(name, partial(_ClassGame, cls, name, params))
    played.reset(task, 0)

    def act(observation: str) -> str:
        game = played.playing()
        assert isinstance(game, _ClassGame)
        action = game.expert(observation)
        played.step(action)
        return action

    return act


class _ClassGame:
    """One episode of a class. Implements `rock_env.games.game.Game`."""

    def __init__(self, cls: type, name: str, params: EnvParams, task: TaskSpec) -> None:
        self._name = name
        self._random = random.Random(task.payload)
        self._success: bool | None = None
        with self._blamed("__init__"):
            self._env: Any = cls(**params.model_dump())
        self._space: Any = getattr(self._env, "action_space", None)

    def reset(self, seed: int) -> tuple[str, Info]:
        if self._space is not None:
            self._space.seed(seed)
        takes = inspect.signature(self._env.reset).parameters.values()
        named = any(one.name == "seed" or one.kind is one.VAR_KEYWORD for one in takes)
        with self._blamed("reset"):
            found = self._env.reset(seed=seed) if named else self._env.reset()
            observation, info = found if isinstance(found, tuple) else (found, {})
            text = _whole(observation, info)
        told = offered(self._space) if self._space is not None else ""
        return f"{told}{text}", scalars(info)

    def step(self, action: str) -> StepResult:
        given: Any = action
        if self._space is not None:
            try:
                given = parsed(self._space, action)
            except NoAction as error:
                return StepResult(str(error), info={"illegal": True})
        with self._blamed("step", action):
            result = _result(self._env.step(given))
        if "is_success" in result.info:
            self._success = bool(result.info["is_success"])
        return result

    def reseed(self, seed: int) -> None:
        """Let Gymnasium's generator, where the class has one, go on from a seed; the global ones do anyway."""
        if self._space is not None and hasattr(self._env, "np_random"):
            from gymnasium.utils.seeding import np_random

            self._env.np_random = np_random(seed)[0]

    def passed(self, total: float) -> bool:
        return (
            total >= float(getattr(self._env, "reward_threshold", _PASS))
            if self._success is None
            else self._success
        )

    def action(self) -> str:
        """Return a random action. Raise `Unimplemented` where the class does not say what they look like."""
        if self._space is not None:
            return encoded(self._space.sample())
        actions: Sequence[str] | None = getattr(self._env, "actions", None)
        with self._blamed("sample_random_action"):
            if actions is not None:
                return str(self._random.choice(list(actions() if callable(actions) else actions)))
            if hasattr(self._env, "sample_random_action"):
                return str(self._env.sample_random_action())
        raise Unimplemented(f"{self._name} does not say what its actions look like.")

    def expert(self, observation: str) -> str:
        """Return what the class's reference policy does now."""
        with self._blamed("expert"):
            return str(self._env.expert(observation))

    def close(self) -> None:
        close = getattr(self._env, "close", None)
        if callable(close):
            close()

    @contextlib.contextmanager
    def _blamed(self, method: str, action: str | None = None) -> Iterator[None]:
        """Say of what the class raises which method and line it came from, and of a step's `action` what it should be."""
        try:
            yield
        except (RockError, MemoryError, OSError):
            raise
        except Exception as error:  # named boundary: a user's own code
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}:{last.lineno}, in {last.name}"
            hint = _HINT if action is not None and self._may_be_illegal(action, error) else ""
            raise InvalidArgument(
                f"{self._name}.{method} raised {type(error).__name__}: {str(error)[:300]} ({place}). "
                f"Correct the class{hint}."
            ) from error

    def _may_be_illegal(self, action: str, error: Exception) -> bool:
        """Return whether a step may have raised because the action was none, as far as the class says what is one."""
        if self._space is not None:
            return False  # it is one of the space
        listed = getattr(self._env, "actions", None)
        if isinstance(listed, Collection):
            return action not in list(listed)
        return isinstance(error, ValueError | LookupError)


def _result(found: Any) -> StepResult:
    """Return what a class's step said. Raise `InvalidArgument` where it is none of the forms."""
    if isinstance(found, StepResult):
        return found
    if not isinstance(found, tuple) or len(found) != 5:
        got = f"{len(found)} values" if isinstance(found, tuple) else f"a {type(found).__name__}"
        raise InvalidArgument(
            f"the class's step returned {got}, expected 5: observation, reward, terminated, truncated, info."
        )
    observation, reward, terminated, truncated, info = found
    return StepResult(
        _whole(observation, info), float(reward), bool(terminated), bool(truncated), scalars(info)
    )


def _whole(observation: object, info: Any) -> str:
    """Return an observation as text, with the suffix that GEM's environments put into the info."""
    if not isinstance(info, Mapping):
        raise InvalidArgument(f"the class's info is a {type(info).__name__}, expected a dict.")
    text, suffix = encoded(observation), info.get("suffix", "")
    return f"{text.rstrip()}\n{suffix}" if suffix else text
