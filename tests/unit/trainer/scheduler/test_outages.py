"""An outage of ROCK costs time and no rollout: in the simulator in every mode, and in a run in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local_fleet import Listening, LocalFleet, config_of, lost

from agent_runtime.store import decode, encode
from agent_runtime.types import RolloutFailure, RolloutRequest
from trainer import loop
from trainer.config import TrainConfig
from trainer.errors import Halted, OutageTooLong, Stopped
from trainer.live.events import RunEvent
from trainer.processes.fleet import Fleet
from trainer.rollout.filling import Rollouts
from trainer.rollout.planning import Plan
from trainer.rollout.tasks import train_requests
from trainer.scheduler import outages as waiting
from trainer.scheduler.outages import MOST_TIMES, Outages
from trainer.simulator import run as simulator
from trainer.simulator.clock import VirtualLoop, run_virtually
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, Script, record_of
from trainer.simulator.run import Report, Saved, simulate

MODES = [
    ("sync", 0, "lockstep"),
    ("sync", 0, "eager"),
    ("pipeline", 1, "lockstep"),
    ("pipeline", 2, "eager"),
    ("stream", 2, "eager"),
]
AWAY = (100.0, 600.0)
"""After so many seconds, for so many."""


def settings(mode: str, lag: int, batching: str, **rollout: Any) -> TrainConfig:
    own = {"mode": mode, "staleness": lag, "batching": batching, "concurrency": 4, **rollout}
    return TrainConfig.model_validate(
        {
            "steps": 8,
            "rollout": {"groups_per_step": 4, "group_size": 4, "max_failure_rate": 0, **own},
            "filter": {"dynamic": "on"},
            "checkpoint": {"every": 1},
        }
    )


def fleet(*away: tuple[float, float]) -> FleetTimes:
    return FleetTimes.model_validate(
        {
            "environment": {"turns": {"low": 1, "high": 4}},
            "learner": {"step_s": {"low": 5, "high": 60}, "other_s": 1},
            "faults": {"slow": 0.1, "away": away},
            "reward_s": {"low": 0, "high": 2},
            "sampler": {"load_s": 2},
        }
    )


class Watched(Plans):
    """Plans that see what comes of them."""

    troubled: float = 0

    def observe(self, plan: Plan, rollouts: Rollouts) -> str:
        self.troubled += rollouts.troubled_share + len(rollouts.rejected)
        assert not any(trajectory.failure for trajectory in rollouts.played)
        return super().observe(plan, rollouts)


def simulated(
    folder: Path, config: TrainConfig, times: FleetTimes, saved: Saved | None = None, loop: Any = None
) -> tuple[Report, Saved]:
    folder.mkdir(exist_ok=True)
    saved = saved or Saved(Watched(config))
    report = simulate(config, times, folder, saved, loop)
    assert isinstance(saved.plans, Watched)
    assert not saved.plans.troubled, "a rollout counts as rejected"
    return report, saved


@pytest.mark.parametrize(("mode", "lag", "batching"), MODES)
def test_an_outage_costs_time_and_no_rollout(tmp_path: Path, mode: str, lag: int, batching: str) -> None:
    """The journal's audit is `simulate`'s: nothing is lost, and nothing learned twice."""
    config = settings(mode, lag, batching)
    (calm, _), (disturbed, _) = (
        simulated(tmp_path / str(len(away)), config, fleet(*away)) for away in ((), (AWAY,))
    )
    assert (calm.outages, calm.away_s) == (0, 0)
    assert disturbed.outages == 1
    assert 300 < disturbed.away_s < AWAY[1], "it begins where the first rollout gives up"
    assert len(disturbed.steps_s) == len(calm.steps_s) == config.steps
    if mode != "stream":
        assert disturbed.weights == calm.weights
    assert disturbed.total_s < calm.total_s + 2 * AWAY[1]


def test_several_outages_are_counted(tmp_path: Path) -> None:
    found, _ = simulated(tmp_path, settings("stream", 2, "eager"), fleet(AWAY, (1000, 300)))
    assert found.outages == 2


@pytest.mark.parametrize(("mode", "lag", "batching"), MODES)
def test_a_run_is_stopped_in_an_outage_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, lag: int, batching: str
) -> None:
    config, clock, said = settings(mode, lag, batching), VirtualLoop(), list[RunEvent]()
    calm, _ = simulated(tmp_path / "calm", config, fleet())
    watched = partial(Outages, say=said.append, is_stopping=lambda: clock.time() > 500)
    monkeypatch.setattr(simulator, "Outages", watched)
    saved = Saved(Watched(config))
    with pytest.raises(Stopped):
        simulated(tmp_path / "stopped", config, fleet(AWAY), saved, clock)
    assert clock.time() < 502
    assert [event.kind for event in said] == ["fault"]
    done = saved.step
    monkeypatch.undo()
    again, _ = simulated(tmp_path / "stopped", config, fleet(), saved)
    assert done + len(again.steps_s) == config.steps
    if mode != "stream":
        assert again.weights == calm.weights


@pytest.mark.parametrize(("mode", "lag", "batching"), MODES)
def test_an_outage_beyond_the_bound_halts_the_run(tmp_path: Path, mode: str, lag: int, batching: str) -> None:
    config, clock = settings(mode, lag, batching, outage_s=120), VirtualLoop()
    with pytest.raises(
        OutageTooLong, match=r"longer than rollout\.outage_s=120 s\. All that was learned is saved"
    ):
        simulated(tmp_path, config, fleet(AWAY), loop=clock)
    assert clock.time() < AWAY[0] + AWAY[1]


def test_without_a_bound_a_server_that_is_away_fails_rollouts(tmp_path: Path) -> None:
    with pytest.raises(Halted, match=r"rollouts were rejected .* failed: unavailable"):
        simulated(tmp_path, settings("sync", 0, "eager", outage_s=0), fleet(AWAY))


# -- one call after the other ---------------------------------------------------------------------------------


class Server:
    """What plays: `codes` are those that each round's rollouts fail with in turn, of one that takes 10 s."""

    def __init__(self, *codes: Sequence[str], away_s: float = 0.0) -> None:
        self.codes = list(codes)
        self.asked: list[list[str]] = []
        self.back_s = away_s
        self.said: list[RunEvent] = []
        self.answered: list[float] = []

    async def answers(self) -> bool:
        self.answered.append(asyncio.get_running_loop().time())
        return self.answered[-1] >= self.back_s

    async def play(self, requests: Sequence[RolloutRequest]) -> list[list[bytes]]:
        self.asked.append([request.id for request in requests])
        codes = self.codes.pop(0) if self.codes else [""] * len(requests)
        await asyncio.sleep(10)
        return [[played(*each)] for each in zip(requests, codes, strict=True)]

    def outages(self, config: TrainConfig, clock: Callable[[], float], **how: Any) -> Outages:
        return Outages(config, self.answers, clock=clock, say=self.said.append, **how)


def played(request: RolloutRequest, code: str) -> bytes:
    record = record_of(request, Script(0, (), 0, False, True), 1, {1: 1})
    return encode(record.as_failed(RolloutFailure(code, "the server said so", 0)) if code else record)


def requests(config: TrainConfig) -> list[RolloutRequest]:
    return train_requests(config, "{}", 1, tasks=["train/1"])[:2]


def codes_of(server: Server, config: TrainConfig, **how: Any) -> tuple[list[str], Outages]:
    """Return how the rollouts ended in the end."""

    async def play() -> tuple[list[list[bytes]], Outages]:
        outages = server.outages(config, asyncio.get_running_loop().time, **how)
        return await outages.play(requests(config), server.play), outages

    tries, outages = run_virtually(play())
    failures = [decode(last).failure for (last,) in tries]
    return [failure.code if failure else "" for failure in failures], outages


EAGER, LOCKSTEP = settings("sync", 0, "eager"), settings("sync", 0, "lockstep")


@pytest.mark.parametrize(("config", "again"), [(EAGER, [1]), (LOCKSTEP, [0, 1])])
def test_what_failed_is_played_again_and_in_lockstep_all_that_sampled_with_it(
    config: TrainConfig, again: list[int]
) -> None:
    server = Server(["", "unavailable"], away_s=100)
    assert codes_of(server, config)[0] == ["", ""]
    ids = [request.id for request in requests(config)]
    assert server.asked == [ids, [ids[number] for number in again]]
    assert server.answered == [10, 11, 13, 17, 25, 41, 71, 101], "twice as long after each no, up to a bound"
    assert [event.kind for event in server.said] == ["fault", "recovery"]
    assert server.said[0].message.startswith("the run's own ROCK server is away since ")
    assert server.said[1].message.startswith("the run's own ROCK server is back after 91 s")


@pytest.mark.parametrize("code", ["env_lost", "resource_exhausted", "policy", "reward_unanswered"])
def test_other_failures_are_the_plan_s(code: str) -> None:
    server = Server(["", code])
    found, outages = codes_of(server, EAGER)
    assert (found, len(server.asked), server.said) == (["", code], 1, [])
    assert outages.metrics() == {"outages/count": 0, "outages/s": 0}


@pytest.mark.parametrize(("away_s", "rounds"), [(0, 1), (50, 2)])
def test_time_that_ran_out_is_an_outage_s_where_the_server_is_away(away_s: float, rounds: int) -> None:
    server = Server(["", "deadline_exceeded"], away_s=away_s)
    assert codes_of(server, EAGER)[0] == ["", "" if away_s else "deadline_exceeded"]
    assert len(server.asked) == rounds


class Dying(Server):
    """A server that each rollout which fails takes along for a second."""

    async def play(self, requests: Sequence[RolloutRequest]) -> list[list[bytes]]:
        tries = await super().play(requests)
        self.back_s = asyncio.get_running_loop().time() + 1
        return tries


def test_a_rollout_that_takes_its_server_along_is_a_failure_in_the_end() -> None:
    server = Dying(["", "unavailable"], *[["unavailable"]] * 20)
    found, outages = codes_of(server, EAGER)
    assert found == ["", "unavailable"]
    assert len(server.asked) == MOST_TIMES
    assert outages.metrics()["outages/count"] == MOST_TIMES


@pytest.mark.parametrize("config", [EAGER, LOCKSTEP])
def test_an_environment_that_says_unavailable_of_itself_holds_up_nobody_else(config: TrainConfig) -> None:
    server = Server(["", "unavailable"], *[["unavailable"]] * 20)
    found, outages = codes_of(server, config)
    assert found == ["", "unavailable"]
    assert [len(asked) for asked in server.asked] == [2, 1, 1, 1, 1]
    assert server.said == []
    assert outages.metrics() == {"outages/count": 0, "outages/s": 0}


def test_what_a_server_hosts_on_may_come_back_within_some_seconds() -> None:
    server = Server(["", "unavailable"], ["unavailable"], ["unavailable"], [""])
    assert codes_of(server, EAGER)[0] == ["", ""]


@pytest.mark.parametrize(
    "code", ["env_lost", "sandbox_lost", "not_found", "deadline_exceeded", "unavailable"]
)
def test_whatever_a_rollout_says_while_its_server_is_away_is_the_outage_s(code: str) -> None:
    server = Server(["", code], away_s=50)
    assert codes_of(server, EAGER)[0] == ["", ""]
    assert [event.kind for event in server.said] == ["fault", "recovery"]


def test_a_server_that_takes_long_to_start_keeps_nobody_from_stopping() -> None:
    server = Server(["", "unavailable"])

    async def starting() -> bool:
        await asyncio.sleep(0 if not server.answered else 1000)
        server.answered.append(0)
        return False

    async def play() -> None:
        time = asyncio.get_running_loop().time
        outages = Outages(EAGER, starting, clock=time, is_stopping=lambda: time() > 30)
        with pytest.raises(Stopped):
            await outages.play(requests(EAGER), server.play)
        assert time() < 32

    run_virtually(play())


def test_who_hears_late_of_an_outage_plays_again_and_tells_of_none() -> None:
    server = Server(["unavailable"], ["unavailable"], away_s=10.5)

    async def play() -> Outages:
        outages = server.outages(EAGER, asyncio.get_running_loop().time)
        first, second = requests(EAGER)

        async def later() -> list[list[bytes]]:
            await asyncio.sleep(9)  # it ends after the first one found the server back
            return await outages.play([second], server.play)

        await asyncio.gather(outages.play([first], server.play), later())
        return outages

    assert run_virtually(play()).metrics() == {"outages/count": 1, "outages/s": 1}
    assert len(server.asked) == 4
    assert [event.kind for event in server.said] == ["fault", "recovery"]


def test_nobody_begins_a_rollout_meanwhile_and_one_of_them_asks() -> None:
    server = Server(["unavailable"], away_s=100)

    async def play() -> None:
        outages = server.outages(EAGER, asyncio.get_running_loop().time)
        first, second = requests(EAGER)
        waiting = asyncio.create_task(outages.play([first], server.play))
        await asyncio.sleep(15)
        others = [asyncio.create_task(outages.play([second], server.play)) for _ in range(50)]
        await asyncio.sleep(20)
        assert len(server.asked) == 1
        waiting.cancel()  # another one asks on
        await asyncio.gather(*others)

    run_virtually(play())
    assert len(server.asked) == 51
    assert len(server.answered) < 13


async def test_no_server_is_away_from_a_run_that_needs_none(tmp_path: Path) -> None:
    """Whose rollouts may run out of time all the same."""
    fleet = Fleet(EAGER, None)
    for address, there in (("", True), (f"unix://{tmp_path}/nobody", False)):
        fleet._rock_address = address
        assert await fleet.rock_answers() == there


def test_an_evaluation_waits_on_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_ASK_S", 0.01)
    monkeypatch.setattr(waiting, "_LOOK_S", 0.01)
    asked: list[list[str]] = []
    answers, now = iter([False, False, True]), iter(range(1000))

    async def answer() -> bool:
        return next(answers)

    def run(left: Sequence[RolloutRequest]) -> list[bytes]:
        asked.append([request.id for request in left])
        return [played(request, "" if len(asked) > 1 else "unavailable") for request in left]

    outages = Outages(EAGER, answer, clock=lambda: next(now))
    wanted = requests(EAGER)
    assert [decode(each).id for each in outages.run(wanted, run)] == [request.id for request in wanted]
    assert asked == [[request.id for request in wanted]] * 2


# -- a whole run ----------------------------------------------------------------------------------------------


class Away(LocalFleet):
    """A fleet whose server is away from a step, or an evaluation, until it was asked three times."""

    at = ("play", 1)
    asks = 3
    asked = 0

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path) -> None:
        super().__init__(config)

    def __enter__(self) -> Away:
        return self

    def __exit__(self, *error: object) -> None: ...

    async def rock_answers(self) -> bool:
        Away.asked += 1
        return Away.asked >= Away.asks

    def _gone(self, encoded: bytes, *at: object) -> bytes:
        if at != Away.at or Away.asked >= Away.asks:
            return encoded
        return encode(replace(lost(decode(encoded)), failure=RolloutFailure("unavailable", "It is away.", 0)))

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        return [self._gone(each, "run", policy_step) for each in super().run(requests, policy_step)]

    async def play_at(self, worker: int, requests: Any, policy_step: int) -> list[list[bytes]]:
        tries = await super().play_at(worker, requests, policy_step)
        return [[self._gone(each, "play", policy_step) for each in own] for own in tries]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(loop, "Fleet", Away)
    monkeypatch.setattr(Away, "asked", 0)
    monkeypatch.setattr(waiting, "_ASK_S", 0.02)
    monkeypatch.setattr(waiting, "_LOOK_S", 0.01)
    return monkeypatch


def trained(folder: Path, observer: Any = None, *, resume: bool = False, **rollout: Any) -> Any:
    config = config_of(rollout=rollout, checkpoint={"every": 100})
    return loop.train(config, folder, observer=observer or Listening(), resume=resume)


@pytest.mark.parametrize("at", [("play", 2), ("run", 0), ("run", 2)])
def test_a_run_ends_as_an_undisturbed_one(tmp_path: Path, away: pytest.MonkeyPatch, at: Any) -> None:
    away.setattr(Away, "at", ())
    calm = trained(tmp_path / "calm")
    away.setattr(Away, "at", at)
    observer = Listening()
    disturbed = trained(tmp_path / "disturbed", observer)
    assert disturbed.model_digest == calm.model_digest
    assert disturbed.eval_final["success"] == calm.eval_final["success"]
    assert [
        said.partition(" since")[0].partition(" after")[0] for said in observer.said if "ROCK" in said
    ] == [
        "note: the run's own ROCK server is away",
        "note: the run's own ROCK server is back",
    ]
    rows = [json.loads(line) for line in (tmp_path / "disturbed" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "train"][-1]
    assert (last["outages/count"], last["outages/s"] > 0) == ((0, False) if at == ("run", 2) else (1, True))
    assert last["failed"] == 0


class Stopping(Listening):
    """Somebody who stops the run when it says that something broke."""

    stop_requested = False

    def on_event(self, event: RunEvent) -> None:
        assert threading.current_thread() is not threading.main_thread() or Away.at[0] == "run"
        self.stop_requested = event.kind == "fault"


@pytest.mark.parametrize("at", [("play", 2), ("run", 0), ("run", 2)])
@pytest.mark.parametrize("outage_s", [3600, 0.03])
def test_a_run_that_stops_or_halts_in_an_outage_is_saved(
    tmp_path: Path, away: pytest.MonkeyPatch, at: Any, outage_s: float
) -> None:
    away.setattr(Away, "at", ())
    calm = trained(tmp_path / "calm")
    away.setattr(Away, "at", at)
    away.setattr(Away, "asks", 10**6)
    if outage_s == 3600:
        assert trained(tmp_path / "run", Stopping()) is None
    else:
        with pytest.raises(OutageTooLong):
            trained(tmp_path / "run", outage_s=outage_s)
    away.setattr(Away, "at", ())
    again = trained(tmp_path / "run", resume=True)
    assert again.model_digest == calm.model_digest
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
