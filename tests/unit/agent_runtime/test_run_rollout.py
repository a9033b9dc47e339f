"""One rollout: what it records, how it ends, what a failure leaves, and that the environment is always closed."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from scripted_world import FIRST_CHAR, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.oracle import record_expert
from agent_runtime.errors import InvalidTrajectory
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, Message, turn_seed
from agent_runtime.run import rollout
from agent_runtime.store import decode, encode
from agent_runtime.types import AgentConfig, PrefixTurn, Start, StopReason, TurnFault
from rock_env.env import observation_hash


async def play(request, *, rock=None, sampler=None, template=None):
    return await run_rollout(
        request,
        rock=rock or MemoryRock(),
        sampler=sampler or ScriptedSampler(),
        template=template or CharTemplate(),
        policy_step=6,
    )


async def test_the_record_says_what_was_asked_and_what_came_of_it():
    rock = MemoryRock()
    request = a_request(params={"goal": 2})
    trajectory = await play(request, rock=rock)
    validate(trajectory)
    assert trajectory.env == "chain@3"
    assert (trajectory.id, trajectory.task_id, trajectory.group_id, trajectory.index, trajectory.seed) == (
        "r0",
        "train/7",
        "g",
        2,
        11,
    )
    assert trajectory.policy_step == 6
    assert (trajectory.stop_reason, trajectory.reward, trajectory.passed) == (
        StopReason.TERMINATED,
        1.0,
        True,
    )
    assert sum(trajectory.turn_rewards) == 2
    assert trajectory.illegal_actions == sum(action.startswith("d") for action in trajectory.actions)
    assert trajectory.observation_hashes == tuple(map(observation_hash, trajectory.observations))
    assert [turn.parent for turn in trajectory.turns] == [None, *range(len(trajectory.turns) - 1)]
    assert {turn.policy_version for turn in trajectory.turns} == {5}
    assert (rock.made, rock.closed) == (1, 1)


async def test_the_same_request_gives_the_same_record_and_another_seed_another():
    first, again = await play(a_request()), await play(a_request())
    assert first.actions == again.actions
    assert first.observations == again.observations
    assert (await play(a_request(seed=12))).actions != first.actions


def test_turn_seeds_differ_between_turns_and_rollouts_and_fit_63_bits():
    seeds = {turn_seed(seed, turn) for seed in (0, 1, 2, 2**64 - 1) for turn in range(500)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("params", "agent", "max_context", "expected"),
    [
        ({"goal": 1}, AgentConfig(max_turns=50), 9999, StopReason.TERMINATED),
        ({"goal": 99, "limit": 4}, AgentConfig(max_turns=50), 9999, StopReason.TRUNCATED),
        ({"goal": 99}, AgentConfig(max_turns=3), 9999, StopReason.MAX_TURNS),
        ({"goal": 99}, AgentConfig(max_turns=50), 200, StopReason.CONTEXT_FULL),
        ({"goal": 99}, AgentConfig(max_turns=50), 5, StopReason.CONTEXT_FULL),
        ({"goal": 99}, AgentConfig(max_turns=6, window_turns=2), 100, StopReason.MAX_TURNS),
    ],
)
async def test_every_end_is_named_and_graded(params, agent, max_context, expected):
    template = CharTemplate(max_context)
    trajectory = await play(a_request(params=params, agent=agent), template=template)
    validate(trajectory)
    assert trajectory.stop_reason is expected
    assert trajectory.reward == float(expected is StopReason.TERMINATED)
    for branch in trajectory.branches():
        assert sum(len(turn.context_ids) + len(turn.completion_ids) for turn in branch.turns) <= max_context


async def test_from_an_anchor_the_prefix_is_context_and_counts_against_the_turn_limit():
    source = await play(a_request(params={"goal": 99}))
    pairs = zip(source.actions[:5], source.observations[:5], strict=True)
    start = Start(3, source.first_observation, tuple(PrefixTurn(*pair) for pair in pairs), resume_seed=1)
    sampler = ScriptedSampler()
    trajectory = await play(replace(a_request(params={"goal": 99}), start=start), sampler=sampler)
    assert len(source.turns) == 12
    assert len(trajectory.turns) == 12 - 5
    assert trajectory.first_observation == source.observations[4]
    shown = CharTemplate().decode(np.array(sampler.prompts["r0", 0]))
    story = "".join(
        observation + action
        for observation, action in zip(
            (source.first_observation, *source.observations), source.actions[:5], strict=False
        )
    )
    assert shown == "Solve train/7." + story + source.observations[4]
    other = await play(replace(a_request(params={"goal": 99}), start=replace(start, resume_seed=2)))
    assert other.observations[0] != trajectory.observations[0]


async def test_a_prefix_that_does_not_reproduce_is_a_failure_not_a_rollout():
    start = Start(3, "elsewhere", (PrefixTurn("a", "nowhere"),))
    trajectory = await play(a_request(start=start))
    assert trajectory.failure is not None
    assert trajectory.failure.code == "reset_divergence"
    assert trajectory.turns == ()
    source = await play(a_request())
    only_first_differs = Start(3, "elsewhere", (PrefixTurn(source.actions[0], source.observations[0]),))
    trajectory = await play(a_request(start=only_first_differs))
    assert trajectory.failure is not None
    assert "first observation" in trajectory.failure.message


async def test_the_context_is_full_when_the_longest_answer_would_not_fit():
    request = a_request(agent=AgentConfig(max_turns=1))
    prompt = len((await play(request)).turns[0].context_ids)
    fits = await play(request, template=CharTemplate(prompt + request.sampling.max_tokens))
    assert fits.stop_reason is StopReason.MAX_TURNS
    full = await play(request, template=CharTemplate(prompt + request.sampling.max_tokens - 1))
    assert (full.stop_reason, full.turns) == (StopReason.CONTEXT_FULL, ())


@pytest.mark.parametrize(
    ("fail", "code", "turn"),
    [
        ({"reset": "lost"}, "env_lost", 0),
        ({"step0": "infra"}, "infra", 0),
        ({"step4": "infra"}, "infra", 4),
        ({"step4": "deadline"}, "deadline_exceeded", 4),
        ({"evaluate": "infra"}, "infra", 12),
        ({"make": "infra"}, "infra", 0),
    ],
)
async def test_a_failing_service_gives_a_masked_record_of_the_turns_done(fail, code, turn):
    rock = MemoryRock()
    trajectory = await play(a_request(params={"fail": fail, "goal": 99}), rock=rock)
    validate(trajectory)
    assert trajectory.failure is not None
    assert (trajectory.failure.code, trajectory.failure.turn) == (code, turn)
    assert "failed" in trajectory.failure.message
    assert trajectory.stop_reason is StopReason.FAILED
    assert math.isnan(trajectory.reward)
    assert not trajectory.passed
    assert len(trajectory.turns) == turn
    assert rock.made == rock.closed


@pytest.mark.parametrize(("fail", "lost"), [("step0", 0), ("step4", 4), ("evaluate", None), ("close", None)])
async def test_what_was_sampled_for_a_step_that_failed_is_counted(fail, lost):
    sampler = ScriptedSampler()
    trajectory = await play(a_request(params={"fail": {fail: "lost"}, "goal": 99}), sampler=sampler)
    assert decode(encode(trajectory)).lost_tokens == trajectory.lost_tokens
    assert trajectory.lost_tokens == (0 if lost is None else len(sampler.completions["r0", lost]))
    assert trajectory.sampled_tokens + trajectory.lost_tokens == sum(map(len, sampler.completions.values()))


async def test_a_failing_engine_is_the_policys_failure():
    rock = MemoryRock()
    trajectory = await play(a_request(params={"goal": 99}), rock=rock, sampler=ScriptedSampler(fail_at=2))
    validate(trajectory)
    assert trajectory.failure is not None
    assert (trajectory.failure.code, trajectory.failure.turn) == ("policy", 2)
    assert (rock.made, rock.closed) == (1, 1)


@pytest.mark.parametrize("hang", ["make", "reset", "step2"])
async def test_running_out_of_time_is_a_failure_that_says_so(hang):
    rock = MemoryRock()
    trajectory = await play(a_request(params={"hang": hang, "goal": 99}, time_limit_s=0.05), rock=rock)
    assert trajectory.failure is not None
    assert trajectory.failure.code == "deadline_exceeded"
    assert "turns took longer than 0.05 s" in trajectory.failure.message
    assert len(trajectory.turns) == (2 if hang == "step2" else 0)
    assert rock.made == rock.closed


async def test_the_grade_has_its_own_time():
    async def agent_of(seconds):
        request = a_request(params={"hang": "evaluate", "goal": 99})

        def nobody(instruction):
            return Silent()

        return await rollout(request, nobody, rock=MemoryRock(), evaluate_limit_s=seconds)

    class Silent:
        async def act(self, observation):
            return None

    trajectory = await agent_of(0.05)
    assert trajectory.failure is not None
    assert "the evaluation took longer than 0.05 s" in trajectory.failure.message


async def test_a_failing_close_is_logged_and_spoils_nothing(caplog):
    trajectory = await play(a_request(params={"fail": {"close": "infra"}}))
    assert trajectory.failure is None
    assert "environment not closed: trajectory_id=r0 code=infra" in caplog.text


async def test_a_bug_propagates_after_the_environment_is_closed():
    rock = MemoryRock()
    with pytest.raises(ZeroDivisionError):
        await play(a_request(params={"fail": {"step1": "bug"}, "goal": 99}), rock=rock)
    assert (rock.made, rock.closed) == (1, 1)


async def test_a_timeout_of_somebody_elses_clock_is_a_bug_too():
    class Impatient(ScriptedSampler):
        async def sample(self, request):
            raise TimeoutError("not the rollout's")

    with pytest.raises(TimeoutError, match="not the rollout's"):
        await play(a_request(), sampler=Impatient())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: replace(c, logprobs=c.logprobs[1:]),
        lambda c: replace(c, logprobs=c.logprobs.astype(np.float64)),
        lambda c: replace(c, ids=c.ids.astype(np.int64)),
        lambda c: replace(c, ids=[FIRST_CHAR]),
        lambda c: replace(c, logprobs=None),
        lambda c: replace(c, logprobs=np.full(1, np.nan, np.float32)),
        lambda c: replace(c, logprobs=np.full(1, -np.inf, np.float32)),
    ],
)
async def test_a_malformed_completion_is_refused_at_once(spoil):
    class Malformed(ScriptedSampler):
        async def sample(self, request):
            ids = np.array([FIRST_CHAR], np.int32)
            return spoil(Completion(ids, np.zeros(1, np.float32), "length", 0))

    rock = MemoryRock()
    with pytest.raises(InvalidTrajectory, match=r"'r0', turn 0 is malformed"):
        await play(a_request(), rock=rock, sampler=Malformed())
    assert rock.closed == 1


@pytest.mark.parametrize("hang", ["reset", "step1", "evaluate"])
async def test_a_cancelled_rollout_closes_its_environment_even_if_cancelled_again(hang):
    rock = MemoryRock()
    task = asyncio.create_task(play(a_request(params={"hang": hang, "goal": 99}), rock=rock))
    await rock.hanging.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (rock.made, rock.closed) == (1, 1)


async def test_three_hundred_rollouts_run_at_once_and_do_not_mix():
    rock, sampler = MemoryRock(), ScriptedSampler(delay_s=0.002)
    requests = [
        a_request(f"r{i}", seed=i, agent=AgentConfig(max_turns=5, window_turns=i % 3)) for i in range(300)
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(request, rock=rock, sampler=sampler)) for request in requests]
    assert sampler.most_running > 100
    assert (rock.made, rock.closed) == (300, 300)
    alone = [await play(requests[i]) for i in (0, 1, 2, 299)]
    together = [task.result() for task in tasks]
    assert [t.actions for t in alone] == [together[i].actions for i in (0, 1, 2, 299)]
    for trajectory in together:
        validate(trajectory)


async def test_an_expert_is_recorded_by_the_same_loop_with_the_same_contexts():
    request = a_request(params={"goal": 3})
    expert = await record_expert(
        request, rock=MemoryRock(), oracle=lambda observation: "aim", template=CharTemplate(), policy_step=1
    )
    validate(expert)
    assert expert.is_expert
    assert (expert.reward, expert.passed, expert.stop_reason) == (1.0, True, StopReason.TERMINATED)
    assert expert.actions == ("aim",) * 3
    assert {turn.finish_reason for turn in expert.turns} == {"expert"}
    assert {turn.policy_version for turn in expert.turns} == {-1}
    assert all(np.isnan(turn.logprobs).all() for turn in expert.turns)
    for turn in expert.turns:
        np.testing.assert_array_equal(turn.completion_ids, CharTemplate().encode_completion("aim"))
    shown = CharTemplate().extend([Message("user", expert.observations[0])], closed=True)
    np.testing.assert_array_equal(expert.turns[1].context_ids, shown)
    sampled = await play(request)
    np.testing.assert_array_equal(sampled.turns[0].context_ids, expert.turns[0].context_ids)


async def test_an_expert_stops_where_the_context_is_full():
    expert = await record_expert(
        a_request(params={"goal": 99}),
        rock=MemoryRock(),
        oracle=lambda observation: "aim",
        template=CharTemplate(100),
    )
    assert expert.stop_reason is StopReason.CONTEXT_FULL
    assert sum(len(turn.context_ids) + len(turn.completion_ids) for turn in expert.turns) <= 100


async def test_the_record_keeps_what_the_environment_says_against_each_turn():
    infos = [{}, {}, {"tool_failed": 1}, {"undoes": 3}, {}]
    answers = iter(["a", "b", "b", "b", "d", "a", "a"])
    trajectory = await record_expert(
        a_request(params={"infos": infos}),
        rock=MemoryRock(),
        oracle=lambda observation: next(answers),
        template=CharTemplate(),
    )
    assert trajectory.turn_faults == ("undone", "", "tool_failed", "", "illegal", "", "")
    assert [trajectory.is_faulty(turn) for turn in range(7)] == [True, False, True, False, True, False, False]
    assert decode(encode(trajectory)).turn_faults == trajectory.turn_faults
    assert decode(encode(trajectory)).turn_faults[4] is TurnFault.ILLEGAL


async def test_an_undo_of_a_replayed_turn_blames_none_of_the_own():
    answers = iter(["b", "a", "a", "a"])
    trajectory = await record_expert(
        a_request(params={"infos": [{}, {"undoes": 2}]}),
        rock=MemoryRock(),
        oracle=lambda observation: next(answers),
        template=CharTemplate(),
    )
    assert trajectory.passed
    assert trajectory.turn_faults == ()
    assert not trajectory.is_faulty(0)
