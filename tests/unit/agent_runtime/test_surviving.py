"""Which losses of an environment an episode survives, and which it does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from agent_runtime import surviving as surviving_module
from agent_runtime.surviving import MOST_LOSSES, MOST_TRIES, Surviving
from rock_env.env import StepResult, Verdict, observation_hash
from rock_env.errors import (
    EnvLost,
    FailedPrecondition,
    InfraError,
    NotFound,
    ResetDivergence,
    ResourceExhausted,
    RockError,
    Unavailable,
    Unimplemented,
)


class FakeSandbox:
    def __init__(self, env: FakeEnv) -> None:
        self._env = env

    async def delete(self) -> None:
        self._env.ended = True


class FakeEnv:
    """Counts its actions; each call first takes what comes next of the rock's `troubles`."""

    version, sandbox_id, image, brief, workdir = "1", "", "", "", ""

    def __init__(self, rock: FakeRock) -> None:
        self._rock = rock
        self._count = 0
        self.closed = self.ended = False
        self.durable = False

    def _trouble(self) -> None:
        if self._rock.troubles and (error := self._rock.troubles.popleft()) is not None:
            raise error

    async def reset(self, *asked: Any, durable: bool = False) -> tuple[str, dict[str, Any], str]:
        self._trouble()
        self.durable = durable and self._rock.lasting
        self._count = len(asked[2])
        return f"o{self._count}", {}, "Do it."

    async def recover(
        self, task_id: str, seed: int, *, prefix: Sequence[tuple[str, bytes]], **more: Any
    ) -> tuple[str, dict[str, Any], str]:
        self._trouble()
        self._rock.recovered.append((task_id, seed, list(prefix), more))
        self._count = len(prefix)
        return f"o{self._count}", {}, "Do it."

    async def step(self, action: str) -> StepResult:
        self._trouble()
        self._count += 1
        return StepResult(f"o{self._count}")

    async def evaluate(self) -> Verdict:
        self._trouble()
        return Verdict(float(self._count), passed=True)

    async def take_over(self) -> FakeEnv:
        self._trouble()
        self._rock.made.append(FakeEnv(self._rock))
        self._rock.made[-1].durable, self._rock.made[-1]._count = True, 5
        return self._rock.made[-1]

    async def sandbox(self) -> Any:
        return FakeSandbox(self)

    async def close(self) -> None:
        self.closed = True


class FakeRock:
    def __init__(self, *troubles: RockError | None) -> None:
        self.troubles: deque[RockError | None] = deque(troubles)
        self.recovered: list[Any] = []
        self.made: list[FakeEnv] = []
        self.lasting = True
        self.full = False
        self.refuses: deque[RockError] = deque()

    async def make(self, env: str, params_json: str) -> Any:
        if self.full:
            raise Unavailable("nobody serves")
        if self.refuses:
            raise self.refuses.popleft()
        self.made.append(FakeEnv(self))
        return self.made[-1]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Take no time to wait, and note for how long it would have been."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(surviving_module.asyncio, "sleep", sleep)
    return waited


def turn(count: int) -> tuple[str, bytes]:
    return f"a{count}", observation_hash(f"o{count}")


@pytest.mark.parametrize("error", [EnvLost("x"), NotFound("x"), Unavailable("x")])
async def test_a_lost_environment_is_brought_to_where_it_was(error: RockError) -> None:
    rock = FakeRock(None, None, error)
    surviving = Surviving(rock)
    env = await surviving.make("e", "{}")
    await env.reset("t", 5, [turn(1)], 9, observation_hash("o0"))
    for count in (2, 3):
        assert (await env.step(f"a{count}")).observation == f"o{count}"
    assert (await env.evaluate()).reward == 3
    more = {"resume_seed": 9, "resume_turn": 1, "initial_hash": observation_hash("o0")}
    assert rock.recovered == [("t", 5, [turn(1), turn(2)], more)]
    assert surviving.losses == 1


async def test_what_is_lost_while_it_is_reset_or_graded_is_asked_again() -> None:
    rock = FakeRock(EnvLost("x"), None, None, NotFound("x"), EnvLost("x"), None, None)
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    await env.step("a1")
    assert (await env.evaluate()).reward == 1
    assert len(rock.made) == 4
    assert [prefix for _, _, prefix, _ in rock.recovered] == [[turn(1)]]


async def test_progress_makes_room_for_more_losses() -> None:
    rock = FakeRock(None, *[each for _ in range(9) for each in (EnvLost("x"), None, None)])
    surviving = Surviving(rock)
    env = await surviving.make("e", "{}")
    await env.reset("t", 0)
    for count in range(1, 10):
        assert (await env.step(f"a{count}")).observation == f"o{count}"
    assert surviving.losses == 9


async def test_an_action_that_takes_its_server_along_is_given_up() -> None:
    rock = FakeRock(None, *[each for _ in range(20) for each in (EnvLost("again"), None)])
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    with pytest.raises(EnvLost, match="again"):
        await env.step("a1")
    assert len(rock.made) == 1 + MOST_LOSSES


async def test_servers_lost_during_a_replay_do_not_count_against_the_action() -> None:
    rock = FakeRock(None, *[EnvLost("x")] * MOST_TRIES, None, None)
    surviving = Surviving(rock)
    env = await surviving.make("e", "{}")
    await env.reset("t", 0)
    assert (await env.step("a1")).observation == "o1"
    assert surviving.losses == MOST_TRIES


async def test_a_replay_that_always_loses_its_server_is_given_up() -> None:
    rock = FakeRock(None, EnvLost("the first"), *[EnvLost("x")] * (MOST_TRIES + 1))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    with pytest.raises(EnvLost, match="the first"):
        await env.step("a1")
    assert len(rock.made) == 1 + MOST_TRIES


@pytest.mark.parametrize("why", [ResetDivergence("x"), Unimplemented("x"), InfraError("x")])
async def test_what_cannot_be_replayed_is_lost_as_it_was(why: RockError) -> None:
    rock = FakeRock(None, EnvLost("the server is gone"), why)
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    with pytest.raises(EnvLost, match="the server is gone"):
        await env.step("a1")
    assert rock.made[-1].closed


async def test_without_another_server_the_loss_is_told() -> None:
    rock = FakeRock(None, EnvLost("the server is gone"))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    rock.full = True
    with pytest.raises(EnvLost, match="the server is gone"):
        await env.step("a1")


@pytest.mark.parametrize("patient", [True, False])
async def test_where_somebody_else_waits_for_the_server_an_episode_is_lost_at_once(
    patient: bool, waits: list[float]
) -> None:
    rock = FakeRock(None, EnvLost("the server is gone"))
    env = await Surviving(rock, patient=patient).make("e", "{}")
    await env.reset("t", 0)
    rock.full = True
    with pytest.raises(EnvLost if patient else Unavailable):
        await env.step("a1")
    assert len(waits) == (MOST_TRIES - 1 if patient else 0)


async def test_who_worked_in_the_sandbox_itself_has_lost_that() -> None:
    rock = FakeRock(None, EnvLost("x"))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    await env.sandbox()
    with pytest.raises(EnvLost):
        await env.evaluate()
    assert len(rock.made) == 1


@pytest.mark.parametrize("busy", [Unavailable, ResourceExhausted])
async def test_a_programs_sandbox_is_taken_over(waits: list[float], busy: type[RockError]) -> None:
    rock = FakeRock(None, EnvLost("x"), busy("not yet", retry_after_s=2.0), None, EnvLost("x"), None, None)
    surviving = Surviving(rock, in_sandbox=True)
    env = await surviving.make("e", "{}")
    await env.reset("t", 0)
    await env.sandbox()
    assert (await env.evaluate()).reward == 5, "what the program left, not a replay"
    assert (rock.recovered, surviving.losses, waits) == ([], 2, [2.0])


async def test_sandboxes_that_outlive_their_server_are_ended() -> None:
    """Close knows nothing of an environment whose server is gone, and says that it is closed."""
    rock = FakeRock(None, EnvLost("x"), None, None)
    env = await Surviving(rock, in_sandbox=True).make("e", "{}")
    await env.reset("t", 0)
    await env.step("a1")
    await env.reset("t", 0)
    await env.close()
    assert [made.ended for made in rock.made] == [True, True]
    plain = await Surviving(rock := FakeRock(None)).make("e", "{}")
    await plain.reset("t", 0)
    await plain.close()
    assert not rock.made[0].ended


@pytest.mark.parametrize("why", [NotFound("gone"), FailedPrecondition("a step"), None])
async def test_a_sandbox_that_cannot_be_taken_over_is_lost(why: RockError | None) -> None:
    rock = FakeRock(None, EnvLost("the server is gone"), why)
    rock.lasting = why is not None
    env = await Surviving(rock, in_sandbox=True).make("e", "{}")
    await env.reset("t", 0)
    await env.sandbox()
    with pytest.raises(EnvLost, match="the server is gone"):
        await env.evaluate()
    assert not rock.recovered


async def test_other_errors_pass_through() -> None:
    rock = FakeRock(None, InfraError("x"))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    with pytest.raises(InfraError):
        await env.step("a1")
    assert len(rock.made) == 1


async def test_a_server_on_its_way_is_waited_for_as_long_as_it_asks(waits: list[float]) -> None:
    rock = FakeRock(None, Unavailable("gone", retry_after_s=2.5))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    rock.refuses.extend([Unavailable("starting"), Unavailable("starting")])
    assert (await env.step("a1")).observation == "o1"
    assert waits == [2.5, 2.5], "the first loss waits for nobody"


async def test_a_server_that_asks_for_long_gets_less(waits: list[float]) -> None:
    rock = FakeRock(None, Unavailable("gone", retry_after_s=1e9))
    env = await Surviving(rock).make("e", "{}")
    await env.reset("t", 0)
    rock.refuses.append(Unavailable("starting"))
    await env.step("a1")
    assert waits == [5.0]
