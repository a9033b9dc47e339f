"""`Streaming` in virtual time: which groups a batch holds, who is let in when, what is set aside, what a resume keeps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import msgspec
import pytest

from agent_runtime.store import decode, encode
from trainer.config import TrainConfig
from trainer.errors import Halted
from trainer.reward.router import Rewarded
from trainer.rollout.filling import Rollouts, why_set_aside
from trainer.rollout.planning import Plan
from trainer.rollout.starts import Anchor, Expert, Origin
from trainer.scheduler.groups import StreamState, place_of
from trainer.scheduler.journal import JOURNAL, Audit, Entry, Journal, asked_for, audit, entries
from trainer.scheduler.queue import State
from trainer.scheduler.sampling import Batch, Sampling
from trainer.scheduler.streaming import Streaming, scheduler_of
from trainer.simulator.clock import VirtualLoop, run_virtually
from trainer.simulator.parts import Plans, Script, record_of

LEARN_S = 10.0


def config(
    lag: int = 2, steps: int = 8, dynamic: str = "off", extra: float = 1.0, **rollout: Any
) -> TrainConfig:
    own = {"mode": "stream", "batching": "eager", "staleness": lag, "workers": 1, "max_failure_rate": 1}
    return TrainConfig.model_validate(
        {
            "steps": steps,
            "rollout": {"groups_per_step": 2, "group_size": 2, **own, **rollout},
            "filter": {"dynamic": dynamic, "dynamic_extra": extra, "resamples": 0},
        }
    )


@dataclass
class Calls:
    """Rollouts that take `takes(id)` seconds; the first of a group wins, unless `won(id)` says otherwise."""

    takes: Callable[[str], float] = lambda one: 1.0
    won: Callable[[str], bool] = lambda one: one.endswith("0")
    lost: Callable[[str], bool] = lambda one: False
    renews: Callable[[str], bool] = lambda one: True
    """Whether its last token is sampled as it ends, else as it begins."""
    breaks: str = ""
    halts_s: float = 0.0
    slots: list[int] = field(default_factory=lambda: [999])
    server_end: str = ""
    shown: int = -1
    began: list[str] = field(default_factory=list)

    async def serve(self, version: int) -> int:
        self.shown = version
        return version

    async def fails(self) -> NoReturn:
        if self.halts_s:
            await asyncio.sleep(self.halts_s)
            raise Halted("no sampler is left")
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def judge(self, encoded: Any, run_folder: Path) -> Rewarded:
        return Rewarded(list(encoded))

    async def play_at(self, worker: int, requests: Any, plan: int) -> list[list[bytes]]:
        (request,) = requests
        first = self.shown
        self.began.append(request.id)
        await asyncio.sleep(self.takes(request.id))
        if request.id == self.breaks:
            raise ConnectionError("the worker is gone")
        marks = {first: 0, self.shown: 0} if self.renews(request.id) else {first: 0}
        script = Script(0, (), 0, self.lost(request.id), self.won(request.id))
        return [[encode(record_of(request, script, plan, marks))]]


@dataclass
class Driven:
    """What a process learned, with what it leaves behind."""

    batches: list[Batch]
    at_s: list[float]
    stream: Any

    def groups(self) -> list[list[str]]:
        """Return the groups of each batch, in its order."""
        return [
            list(dict.fromkeys(t.group_id for t in batch.rollouts.trajectories)) for batch in self.batches
        ]


def drive(
    settings: TrainConfig,
    calls: Calls,
    folder: Path,
    plans: Plans | None = None,
    *,
    begun: tuple[int, StreamState] | None = None,
    until: int | None = None,
    look: Callable[[Any], None] | None = None,
) -> Driven:
    """Learn the steps up to `until`, after those of a checkpoint that it `begun` from; `look` sees every round."""
    done, state = begun or (0, None)
    driven = Driven([], [], None)
    folder.mkdir(exist_ok=True)

    async def run() -> None:
        now = asyncio.get_running_loop().time
        journal = Journal(folder, done=done or None)
        journal.begin([one for group in (state.open if state else []) for one in group.ids])
        source = plans or Plans(settings)
        stream = scheduler_of(settings, calls, source, journal, done=done, begun=state, clock=now)
        driven.stream = stream
        running = asyncio.create_task(stream.run())
        try:
            for step in range(done + 1, (until or settings.steps) + 1):
                await stream.learned(step - 1)
                driven.batches.append(await stream.batch(step))
                driven.at_s.append(now())
                await asyncio.sleep(LEARN_S)
                stream.consumed(driven.batches[-1])
                if settings.rollout.overlaps:
                    await stream.learned(step)
            if until is None:
                await running
        finally:
            running.cancel()
            journal.close()

    run_virtually(run(), VirtualLoop(lambda turn: look(driven) if look and driven.stream else None))
    return driven


def audited(folder: Path) -> Audit:
    return audit(entries(folder / JOURNAL))


def told(folder: Path, kind: str) -> list[Entry]:
    return [entry for entry in entries(folder / JOURNAL) if entry.kind == kind]


def groups_of(rollouts: list[Any]) -> list[str]:
    return list(dict.fromkeys(each.trajectory.group_id for each in rollouts))


SLOW = "000001-0000-001"


def takes_long(one: str) -> float:
    return 55.0 if one == SLOW else 1.0


def test_what_is_finished_first_is_learned_first_and_nobody_waits_for_a_straggler(tmp_path: Path) -> None:
    driven = drive(config(), Calls(takes_long), tmp_path)
    assert driven.at_s == [1 + LEARN_S * step for step in range(8)]
    assert driven.groups()[:2] == [["000001-0001", "000002-0000"], ["000002-0001", "000003-0000"]]
    assert driven.groups()[6][0] == "000001-0000"  # in at 55 s; the batch before it was formed at 51 s
    found = audited(tmp_path)
    assert (found.lost, found.twice, found.open, found.consumed) == ([], [], [], 8 * 4)


def fleet_of(seed: int) -> tuple[TrainConfig, Calls]:
    """Draw settings and a fleet; what a rollout takes is a function of its id."""
    draw = Random(seed)
    settings = config(
        draw.randint(1, 4),
        steps=6,
        dynamic=draw.choice(["on", "off"]),
        extra=draw.choice([0.5, 1, 2]),
        groups_per_step=draw.randint(1, 4),
        spare_groups=draw.choice([0, 0, 1, 5]),
        concurrency=99,
    )
    sigma = draw.choice([0.1, 1.5, 2.5])
    return settings, Calls(
        takes=lambda one: Random(f"{seed} {one}").lognormvariate(1, sigma),
        won=lambda one: Random(f"won {seed} {one}").random() < 0.5,
        lost=lambda one: Random(f"lost {seed} {one}").random() < 0.1 and one.endswith("1"),
        renews=lambda one: Random(f"renews {seed} {one}").random() < 0.5,
        slots=[draw.randint(1, 12), draw.randint(1, 12)],
    )


@pytest.mark.parametrize("seed", range(16))
def test_no_more_is_let_in_than_the_rule_says_and_every_group_ends_once(tmp_path: Path, seed: int) -> None:
    settings, calls = fleet_of(seed)
    rollout, let_in, broken = settings.rollout, Counter[str](), list[Any]()
    real = Journal.admitted

    def look(driven: Driven) -> None:
        stream = driven.stream
        asides = [
            each for batch in driven.batches for each in [*batch.rollouts.flat, *batch.rollouts.too_old]
        ]
        aside = {each.trajectory.group_id for each in asides}
        formed = [each for own in stream._formed.values() for each in own]
        aside |= {group.id for group, state in formed if state is not State.CONSUMED}
        aside |= {group.id for group in [*stream._flat, *stream._too_old]}
        ahead = (stream._learned + 1 + rollout.staleness) * rollout.groups_per_step + rollout.spare_groups
        if len(let_in) - len(aside) > min(ahead, settings.steps * rollout.groups_per_step):
            broken.append((len(let_in), len(aside), ahead))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            Journal,
            "admitted",
            lambda self, plan, version, ids: (let_in.update([ids[0][:-4]]), real(self, plan, version, ids)),
        )
        driven = drive(settings, calls, tmp_path, look=look)
    assert not broken
    assert max(let_in.values()) == 1
    learned = [name for batch in driven.groups() for name in batch]
    assert len(set(learned)) == len(learned) == settings.steps * rollout.groups_per_step
    found = audited(tmp_path)
    assert (found.lost, found.twice, found.open) == ([], [], [])
    assert found.consumed == settings.steps * rollout.groups_per_step * 2
    aside = sum(len(batch.rollouts.flat) + len(batch.rollouts.too_old) for batch in driven.batches) // 2
    assert len(let_in) == len(learned) + aside
    assert not +driven.stream.queue.counts


def test_a_batch_takes_the_oldest_of_those_that_are_in(tmp_path: Path) -> None:
    """Later groups come in first; by the time that a batch is asked for, older ones are in, too."""
    calls = Calls(lambda one: {"000001": 5.0, "000002": 3.0}.get(one[:6], 1.0))
    driven = drive(config(lag=4, steps=6), calls, tmp_path)
    first = ["000003-0000", "000003-0001"], ["000001-0000", "000001-0001"], ["000002-0000", "000002-0001"]
    assert driven.groups()[:3] == list(first)


def test_flat_groups_are_replaced_as_often_as_allowed_and_learned_else(tmp_path: Path) -> None:
    settings = config(steps=4, dynamic="on", extra=0.5, groups_per_step=4)
    rollouts = [batch.rollouts for batch in drive(settings, Calls(won=bool), tmp_path).batches]
    assert [(each.extra_groups, len(each.flat) // 2) for each in rollouts] == [(2, 2)] * 3 + [(0, 0)]
    assert sum(each.flat_groups for each in rollouts) == 4 * 4 + 3 * 2
    assert not drive(config(steps=4), Calls(won=bool), tmp_path / "off").batches[0].rollouts.flat


def test_a_batch_counts_its_own_flat_groups(tmp_path: Path) -> None:
    driven = drive(config(lag=4), Calls(won=lambda one: one.endswith("0") or one[5] in "13"), tmp_path)
    flat = [sum(name[5] in "13" for name in groups) for groups in driven.groups()]
    assert [batch.rollouts.flat_groups for batch in driven.batches] == flat
    assert 0 < sum(flat) < 16


def test_a_group_without_a_token_within_the_lag_is_set_aside_as_too_old(tmp_path: Path) -> None:
    settings = config()
    driven = drive(settings, Calls(takes_long, renews=lambda one: False), tmp_path)
    assert [groups_of(batch.rollouts.too_old) for batch in driven.batches] == [[]] * 6 + [["000001-0000"], []]
    late = driven.batches[6].rollouts
    assert {why_set_aside(each.trajectory, settings, 7) for each in late.too_old} == {"too old"}
    assert "000001-0000" not in {name for batch in driven.groups() for name in batch}
    assert set(told(tmp_path, "consumed")[6].set_aside) == {"000001-0000-000", SLOW}
    assert audited(tmp_path).consumed == 8 * 4
    within = drive(settings, Calls(takes_long), tmp_path / "within")  # one token as it ends is enough
    assert not any(batch.rollouts.too_old for batch in within.batches)


def test_spare_groups_are_let_in_beyond_the_lag_and_learned_later(tmp_path: Path) -> None:
    settings = config(lag=1, spare_groups=2, steps=4)
    driven = drive(settings, Calls(lambda one: 15.0 if one[:6] == "000003" else takes_long(one)), tmp_path)
    let_in = told(tmp_path, "admitted")
    assert [entry.step for entry in let_in if entry.version == 0] == [1, 1, 2, 2, 3, 3]
    learned = {name for batch in driven.groups() for name in batch}
    assert {"000003-0000", "000003-0001"} <= learned
    too_old = {name for batch in driven.batches for name in groups_of(batch.rollouts.too_old)}
    assert {entry.rollouts[0][:-4] for entry in let_in} == learned | too_old


def test_an_error_of_a_rollout_reaches_whoever_waits_and_who_asks_later(tmp_path: Path) -> None:
    async def asked(waits_s: float) -> None:
        settings, journal = config(), Journal(tmp_path, done=None)
        journal.begin()
        calls, now = Calls(breaks=SLOW), asyncio.get_running_loop().time
        stream = scheduler_of(settings, calls, Plans(settings), journal, done=0, begun=None, clock=now)
        running = asyncio.create_task(stream.run())
        await asyncio.sleep(waits_s)
        for _ in range(2):
            with pytest.raises(ConnectionError, match="the worker is gone"):
                await stream.batch(1)
        await running
        journal.close()

    for waits_s in (0.5, 5.0):
        run_virtually(asked(waits_s))


def test_a_stream_ends_where_nobody_can_sample_any_more(tmp_path: Path) -> None:
    with pytest.raises(Halted, match="no sampler is left"):
        drive(config(), Calls(lambda one: 1e6, halts_s=20), tmp_path)


def test_too_many_failures_halt(tmp_path: Path) -> None:
    fails = Calls(lost=lambda one: one[:6] == "000003")
    with pytest.raises(Halted, match=r"4 of 4 rollouts were rejected .* 4 of them have no replacement"):
        drive(config(max_failure_rate=0.5), fails, tmp_path)
    assert len(told(tmp_path, "consumed")) == 2


def test_without_lag_a_stream_has_the_batches_of_sync(tmp_path: Path) -> None:
    stream, sync = (
        drive(config(lag=0, dynamic="on", mode=mode), Calls(takes_long), tmp_path / mode)
        for mode in ("stream", "sync")
    )
    assert isinstance(stream.stream, Sampling)
    assert [b.rollouts.encoded for b in stream.batches] == [b.rollouts.encoded for b in sync.batches]
    assert stream.at_s == sync.at_s


# -- checkpoints -----------------------------------------------------------------------------------------------


def reopened(batch: Batch) -> tuple[int, StreamState]:
    """Return a batch's step, and what its checkpoint holds, as it is read from a disk."""
    assert batch.open is not None
    return batch.plan.step, msgspec.msgpack.decode(msgspec.msgpack.encode(batch.open), type=StreamState)


def open_ids(state: StreamState) -> set[str]:
    return {one for group in state.open for one in group.ids}


@pytest.mark.parametrize("are_kept", [True, False])
def test_a_resumed_stream_ends_every_group_that_was_open(tmp_path: Path, are_kept: bool) -> None:
    settings, plans = config(), Plans(config())
    before = drive(settings, Calls(takes_long), tmp_path, plans, until=2)
    done, state = reopened(before.batches[-1])
    old = {decode(own[0]).group_id for own in plans.groups.values()}
    kept = {group.requests[0].group_id for group in state.open if are_kept} & old
    if not are_kept:
        plans.groups.clear()
    calls = Calls(takes_long)
    after = drive(settings, calls, tmp_path, plans, begun=(done, state))
    assert bool(kept) == are_kept
    assert not kept & {one[:-4] for one in calls.began}
    learned = [name for batch in [*before.groups(), *after.groups()] for name in batch]
    assert len(set(learned)) == len(learned) == 8 * 2
    assert open_ids(state) <= {f"{name}-{index:03d}" for name in learned for index in range(2)}
    found = audited(tmp_path)
    assert (found.lost, found.twice, found.open, found.consumed) == ([], [], [], 8 * 4)


def test_what_newer_weights_than_the_checkpoint_has_sampled_is_played_again(tmp_path: Path) -> None:
    settings, plans = config(), Plans(config())
    before = drive(settings, Calls(lambda one: 35.0 if one == SLOW else 1.0), tmp_path, plans, until=4)
    done, state = reopened(before.batches[1])
    newest = {number: max_version(own) for number, own in plans.groups.items()}
    stale = [group for group in state.open if newest.get(group.number, -1) > done]
    assert stale
    calls = Calls(takes_long)
    drive(settings, calls, tmp_path, plans, begun=(done, state))
    assert {one for group in stale for one in group.ids} <= set(calls.began)
    assert audited(tmp_path).lost == audited(tmp_path).twice == audited(tmp_path).open == []


def max_version(encoded: list[bytes]) -> int:
    return max(span.version for each in encoded for turn in decode(each).turns for span in turn.spans)


def test_a_record_of_a_process_whose_steps_are_gone_is_never_learned(tmp_path: Path) -> None:
    """Step 3 to 4 were done twice: what the first time left of groups that were then open is not what the second had."""
    settings, plans = config(), Plans(config())
    first = drive(settings, Calls(takes_long), tmp_path, plans, until=4)
    gone = {one for own in plans.groups.values() for one in own if max_version([one]) > 2}
    assert gone
    slow = Calls(lambda one: 200.0 if one[:6] > "000003" else 1.0)
    second = drive(settings, slow, tmp_path, plans, begun=reopened(first.batches[1]), until=3)
    assert not gone & {one for own in plans.groups.values() for one in own}
    third = Calls(takes_long)
    drive(settings, third, tmp_path, plans, begun=reopened(second.batches[0]))
    assert audited(tmp_path).open == []


# -- anchors ---------------------------------------------------------------------------------------------------


def anchor(turn: int) -> Anchor:
    return Anchor(Expert("e", "train/7", 3, "", (), Origin.ORACLE), turn)


class Anchored(Plans):
    """Plans whose first group begins at an anchor that moves with every step; they remember what was observed."""

    def __init__(self, settings: TrainConfig) -> None:
        super().__init__(settings)
        self.observed: list[dict[str, Any]] = []

    def plan(self, step: int) -> Plan:
        plan = super().plan(step)
        return Plan(step, {plan.requests[0].group_id: anchor(10 * step)}, plan.requests, [], 0.0)

    def observe(self, plan: Plan, rollouts: Rollouts) -> str:
        seen = {t.group_id for t in rollouts.seen}
        assert plan.anchors.keys() == {name for name in seen if name.endswith("0000")}
        self.observed.append({name: place_of(each) for name, each in plan.anchors.items()})
        return super().observe(plan, rollouts)


@pytest.mark.parametrize("renews", [True, False])
def test_outcomes_are_counted_for_the_anchor_that_they_began_at(tmp_path: Path, renews: bool) -> None:
    settings = config(dynamic="on")
    plans = Anchored(settings)
    calls = Calls(takes_long, won=bool, renews=lambda one: renews or one != SLOW)
    before = drive(settings, calls, tmp_path, plans, until=2)
    drive(settings, Calls(takes_long, won=bool), tmp_path, plans, begun=reopened(before.batches[-1]))
    counted = {name: place for step in plans.observed for name, place in step.items()}
    assert counted == {name: ("e", 10 * int(name[:6]), 0) for name in counted}
    assert len(counted) == sum(map(len, plans.observed)) >= 6
    assert "000001-0000" in counted
    assert [entry.anchors for entry in told(tmp_path, "consumed")] == plans.observed


# -- the journal -----------------------------------------------------------------------------------------------


def test_the_same_batches_come_from_the_journal_and_the_records(tmp_path: Path) -> None:
    settings = config(dynamic="on", extra=0.5)
    plans = Anchored(settings)
    calls = Calls(
        lambda one: Random(one).lognormvariate(1, 2), won=lambda one: Random(f"w{one}").random() < 0.5
    )
    driven = drive(settings, calls, tmp_path, plans)
    played = {decode(one).id: one for own in plans.groups.values() for one in own}
    for batch, entry in zip(driven.batches, told(tmp_path, "consumed"), strict=True):
        assert [played[one] for one in entry.rollouts] == batch.rollouts.encoded
        assert [played[one] for one in entry.set_aside] == [each.encoded for each in batch.rollouts.set_aside]
        assert entry.anchors == {name: place_of(each) for name, each in batch.plan.anchors.items()}
        assert [asked_for(one) for one in entry.rollouts] == [request.id for request in batch.plan.requests]


def test_the_journal_tells_of_a_group_that_a_checkpoint_lost(tmp_path: Path) -> None:
    settings, plans = config(), Plans(config())
    done, state = reopened(drive(settings, Calls(takes_long), tmp_path, plans, until=2).batches[-1])
    gone = state.open.pop(0)
    assert gone.ids[1] == SLOW
    drive(settings, Calls(takes_long), tmp_path, plans, begun=(done, state))
    assert audited(tmp_path).lost == gone.ids


def test_the_journal_tells_of_a_group_that_is_learned_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Streaming.consumed

    def twice(stream: Streaming, batch: Batch) -> None:
        real(stream, batch)
        if batch.plan.step == 3:
            stream._journal.consumed(4, [t.id for t in batch.rollouts.trajectories], [])

    monkeypatch.setattr(Streaming, "consumed", twice)
    driven = drive(config(), Calls(), tmp_path)
    assert audited(tmp_path).twice == [t.id for t in driven.batches[2].rollouts.trajectories]


def test_the_journal_tells_of_a_group_that_came_to_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Streaming._take

    def forgetful(stream: Streaming, group: Any) -> None:
        if group.id == "000002-0001":
            stream._admission.give_back()
            stream._changed.set()
        else:
            real(stream, group)

    monkeypatch.setattr(Streaming, "_take", forgetful)
    drive(config(), Calls(), tmp_path)
    assert audited(tmp_path).open == ["000002-0001-000", "000002-0001-001"]
