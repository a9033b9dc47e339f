"""GEM's environments as `gem:ID`. GEM is imported where one of them runs, and not before."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rock_env.env import Info, StepResult
from rock_env.games.game import Game, scalars
from rock_env.spec import TaskSpec
from sandboxes.libraries.hosting import Library, LibraryParams

__all__ = ["LIBRARY"]

_OTHER_DATA = 1_000_000
"""Added to the seed of generated questions where a task is held out: GEM draws from 500 that follow from one seed."""
_SUCCESS = 1 - 1e-6
"""GEM's rewards add up to 1 over an episode that ends well, be they given at its end or in shares on the way."""
_WORDLESS = "\\boxed{1}"
_EVALUATES = "its scorer runs text as Python code (`eval`), so an answer could replace the scorer"
_STARTS = "its scorer parses answers with SymPy, which runs them as Python code, in a process that it starts"
_PROGRAM = (
    "it runs the answer as a program beside its scorer. `swe`, `code` and `terminal` run it in a sandbox"
)
_LEFT_OUT = {
    **dict.fromkeys(("code:*", "eval:CodeContest"), _PROGRAM),
    **dict.fromkeys(
        ("math:*", "eval:AIME24", "eval:AMC", "eval:MATH500", "eval:Minerva", "eval:OlympiadBench"), _STARTS
    ),
    **dict.fromkeys(
        (
            "rg:binary_matrix",
            "rg:bitwise_arithmetic",
            "rg:countdown",
            "rg:intermediate_integration",
            "rg:n_queens",
            "rg:number_sorting",
            "rg:polynomial_multiplication",
            "rg:puzzle24",
            "rg:simple_integration",
            "rg:spiral_matrix",
            "rg:string_insertion",
        ),
        _EVALUATES,
    ),
}


class _GemGame:
    def __init__(self, env_id: str, arguments: Mapping[str, Any], *, held_out: bool) -> None:
        import gem

        self._env = gem.make(env_id, **arguments)
        data_seed = getattr(self._env, "seed", None)
        if held_out and isinstance(data_seed, int) and "seed" not in arguments:
            self._env = gem.make(env_id, **arguments, seed=data_seed + _OTHER_DATA)

    def reset(self, seed: int) -> tuple[str, Info]:
        observation, info = self._env.reset(seed)
        return _whole(observation, info), scalars(info)

    def step(self, action: str) -> StepResult:
        observation, reward, terminated, truncated, info = self._env.step(action)
        text = _whole(observation, info)
        return StepResult(text, float(reward), bool(terminated), bool(truncated), scalars(info))

    def reseed(self, seed: int) -> None:
        """Do nothing: its chance is the global generators'."""

    def passed(self, total: float) -> bool:
        return total >= _SUCCESS

    def action(self) -> str:
        """Return a random action, or one without sense where the game offers none."""
        try:
            return str(self._env.sample_random_action())
        except NotImplementedError:
            return _WORDLESS

    def close(self) -> None:
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


def _whole(observation: object, info: Mapping[str, Any]) -> str:
    """Return an observation with its suffix, such as the board, which GEM's own wrappers put behind it."""
    suffix = info.get("suffix", "")
    return f"{str(observation).rstrip()}\n{suffix}" if suffix else str(observation)


def _registered() -> tuple[str, ...]:
    import gem  # noqa: F401  # fills the registry
    from gem.envs.registration import ENV_REGISTRY

    return tuple(sorted(name for name in ENV_REGISTRY if not name.startswith("rock:")))


def _prepare(env_id: str) -> None:
    from gem.envs.registration import ENV_REGISTRY

    place = ENV_REGISTRY[env_id].entry_point
    if isinstance(place, str):
        importlib.import_module(place.partition(":")[0])


def _game(env_id: str, params: LibraryParams, task: TaskSpec) -> Game:
    return _GemGame(env_id, params.given(), held_out=task.split == "held_out")


LIBRARY = Library(
    name="gem",
    package="gem-llm",
    params=LibraryParams,
    game=_game,
    known=_registered,
    prepare=_prepare,
    summary="{id} of the library GEM, as it is there.",
    instruction="Play {id} of GEM: the first observation says how.",
    left_out=_LEFT_OUT,
)
