"""A class with `reset` and `step` becomes an environment, whichever of the three interfaces it has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rock_env import plugins
from rock_env.env import Env, StepResult
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.games.own import class_env, instruction_of
from rock_env.spec import EnvSpec


class Coin:
    """Say the side that was shown."""

    actions = ("heads", "tails")

    def __init__(self, tries: int = 2) -> None:
        self.left = tries

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.side = random.Random(seed).choice(self.actions)
        return self.side, {"suffix": "?"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        right = action == self.side
        return (
            self.side,
            float(right),
            right,
            self.left == 0,
            {} if action in self.actions else {"illegal": True},
        )

    def expert(self, observation: str) -> str:
        return self.side


def played(spec: EnvSpec, *actions: str, split: str = "train", index: int = 0, **arguments: Any) -> list[Any]:
    params = spec.params(**arguments)
    env: Env = spec.factory(params)  # type: ignore[assignment]
    first, _ = env.reset(spec.tasks(params).get(split, index), 0)
    results = [env.step(action) for action in actions]
    return [first, *results, env.evaluate()]


def test_what_a_class_does_not_say_is_filled_in() -> None:
    spec = class_env(Coin, "my:Coin")
    assert (spec.name, spec.version, spec.summary) == ("my:Coin", "1", "Say the side that was shown.")
    source = spec.tasks(spec.params())
    train, held_out = (
        {source.get(split, index).payload for index in range(100)} for split in ("train", "held_out")
    )
    assert len(train | held_out) == 200  # no seed is in both
    first, result, verdict = played(spec, "heads" if played(spec)[0].startswith("heads") else "tails")
    assert first.endswith("\n?")  # GEM's suffix
    assert (result.reward, result.terminated, verdict.reward, verdict.passed) == (1.0, True, 1.0, True)
    assert spec.params(tries=5).model_dump() == {"tries": 5}
    task = source.get("train", 3)
    assert spec.oracle(spec.params(), task)(played(spec, index=3)[0]) == played(spec, index=3)[0].split()[0]
    assert spec.explorer(spec.params(), task)("") in Coin.actions


def test_chance_follows_from_the_task_also_where_reset_takes_no_seed() -> None:
    class Dice:
        def reset(self) -> str:
            return str(random.random())

        def step(self, action: str) -> StepResult:
            return StepResult(str(random.random()), 1.0, terminated=True, info={"is_success": action == "6"})

    spec = class_env(Dice, "dice")
    before = random.getstate()
    assert played(spec, "6") == played(spec, "6") != played(spec, "6", index=1)
    assert random.getstate() == before
    assert played(spec, "6")[-1].passed
    assert not played(spec, "1")[-1].passed  # is_success says more than the return
    assert not spec.has_oracle


def test_gymnasium_s_spaces_are_json() -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    class Count(gymnasium.Env):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.action_space = gymnasium.spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.goal = int(self.np_random.integers(3))
            return {"goal": self.goal}, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return [int(action)], float(action == self.goal), True, False, {}

    spec = class_env(Count, "count")
    first, illegal, _, verdict = played(spec, "3", "2")
    assert first.startswith('Actions: Discrete(3), as JSON.\n{"goal": ')
    assert illegal.info == {"illegal": True}
    assert verdict.passed == first.endswith("2}")
    assert spec.explorer(spec.params(), spec.tasks(spec.params()).get("train", 0))("") in "012"


def test_mistakes_are_named() -> None:
    class NoStep:
        def reset(self) -> str:
            return ""

    class Needs(Coin):
        def __init__(self, words: int) -> None:
            super().__init__()

    class Old(Coin):
        def step(self, action: str) -> Any:
            return "", 0.0, True, {}

    class Broken(Coin):
        def step(self, action: str) -> Any:
            return {}[action]

    with pytest.raises(InvalidArgument, match=r"NoStep is no environment: got no step, expected reset"):
        class_env(NoStep, "x")
    with pytest.raises(InvalidArgument, match=r"needs 'words'.*give words a default"):
        class_env(Needs, "x")
    with pytest.raises(InvalidArgument, match=r"returned 4 values, expected 5"):
        played(class_env(Old, "x"), "a")
    with pytest.raises(
        InvalidArgument, match=r"x\.step raised KeyError: 'a' \(.*test_class_envs\.py:\d+, in step\)"
    ):
        played(class_env(Broken, "x"), "a")
    assert instruction_of(NoStep) == ""


@pytest.mark.parametrize(
    ("actions", "error", "hinted"),
    [
        (("heads", "tails"), NameError("q"), False),  # it was an action
        (("heads", "tails"), KeyError("heads"), False),
        (("tails",), NameError("q"), True),  # it was none
        (None, ValueError("q"), True),  # nobody says, and such errors come from reading one
        (None, KeyError("heads"), True),
        (None, ZeroDivisionError("q"), False),
        (None, AttributeError("q"), False),
    ],
)
def test_a_step_that_raises_is_told_of_illegal_actions_only_where_it_may_have_been_one(
    actions: tuple[str, ...] | None, error: Exception, hinted: bool
) -> None:
    class Raises(Coin):
        def reset(self, seed: int | None = None) -> Any:
            return "heads"

        def step(self, action: str) -> Any:
            raise error

    Raises.actions = actions  # type: ignore[assignment]
    with pytest.raises(InvalidArgument, match=r"x\.step raised .*Correct the class") as raised:
        played(class_env(Raises, "x"), "heads")
    assert ("illegal" in str(raised.value)) == hinted


def test_a_reset_that_raises_is_told_nothing_of_actions() -> None:
    class Raises(Coin):
        def reset(self, seed: int | None = None) -> Any:
            raise ValueError("q")

    with pytest.raises(InvalidArgument, match=r"x\.reset raised ValueError: q \(.*\)\. Correct the class\.$"):
        played(class_env(Raises, "x"))


def test_a_server_imports_no_module_that_a_caller_names() -> None:
    with pytest.raises(UnknownName):
        plugins.load_env("os:system")
