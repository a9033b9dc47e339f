"""The long-horizon agent: whatever the policy says, its contexts are exact, bounded, and hold what was kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from flat_branches import token_arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_world import ALIAS, END, FIRST_CHAR, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.conversation import prompt_after
from agent_runtime.agents.long_horizon import ASK_SUMMARY
from agent_runtime.agents.oracle import record_expert, retell
from agent_runtime.errors import InvalidTrajectory
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.replay import replay
from agent_runtime.store import decode, encode
from agent_runtime.types import (
    AgentConfig,
    RolloutRequest,
    Start,
    StopReason,
    Trajectory,
    TurnFault,
    TurnLabel,
)

ASK = len(ASK_SUMMARY)
MAX_TOKENS, SUMMARY_TOKENS = 28, 12
NOTES = (
    "memory write plan go",
    "memory write b {}{}",
    "memory read plan",
    "memory delete b",
    "memory write b",
)


@dataclass
class TalkingSampler(ScriptedSampler):
    """Acts, takes notes, deletes and mistypes them, and summarises, by the request's seed alone."""

    notes: float = 0.4

    async def sample(self, request: SampleRequest) -> Completion:
        rng = np.random.default_rng(request.seed)
        asked = CharTemplate().decode(request.prompt_ids[-ASK - 2 :]).endswith(ASK_SUMMARY)
        if asked or rng.random() > self.notes:
            return await super().sample(request)
        text = NOTES[rng.integers(len(NOTES))].format(*rng.integers(0, 1000, 2))[
            : request.params.max_tokens - 1
        ]
        chars = np.array([ord(char) for char in text])
        ids = np.append(FIRST_CHAR + chars + ALIAS * rng.integers(0, 2, len(chars)), END).astype(np.int32)
        key = (request.rollout_id, request.turn)
        self.prompts[key], self.completions[key] = request.prompt_ids.tolist(), ids.tolist()
        return Completion(ids, -rng.random(len(ids)).astype(np.float32), "stop", self.version)


def play(request: RolloutRequest, sampler: ScriptedSampler, template: CharTemplate) -> Trajectory:
    return asyncio.run(run_rollout(request, rock=MemoryRock(), sampler=sampler, template=template))


def horizon(**changes: object) -> AgentConfig:
    settings = {"kind": "long_horizon", "max_turns": 60, "summary_tokens": SUMMARY_TOKENS, "memory_chars": 80}
    return AgentConfig(**{**settings, **changes})  # type: ignore[arg-type]


def text_of(sampler: ScriptedSampler, trajectory: Trajectory, turn: int) -> str:
    return CharTemplate().decode(np.array(sampler.prompts[trajectory.id, turn]))


requests = st.builds(
    lambda seed, system, compact_at, max_turns: a_request(
        seed=seed,
        agent=horizon(system=system, compact_at=compact_at, max_turns=max_turns),
        max_tokens=MAX_TOKENS,
        params={"goal": 99},
    ),
    seed=st.integers(0, 2**63),
    system=st.booleans(),
    compact_at=st.sampled_from([0.2, 0.4, 0.6, 1.0]),
    max_turns=st.integers(1, 60),
)
templates = st.builds(CharTemplate, st.integers(ASK + 50, 2500))


def kept_notes(trajectory: Trajectory, until: int) -> dict[str, str]:
    """Return the notes before a turn, by a reading of the calls of its own."""
    notes: dict[str, str] = {}
    for turn in (turn for turn in trajectory.internal_turns if turn < until):
        words = trajectory.actions[turn].split()
        if trajectory.turn_faults and trajectory.turn_faults[turn] is not TurnFault.NONE:
            continue
        if words[:2] == ["memory", "write"]:
            notes[words[2]] = " ".join(words[3:])
        elif words[:2] == ["memory", "delete"]:
            del notes[words[2]]
    return notes


@settings(max_examples=60)
@given(request=requests, template=templates)
def test_every_context_is_exact_bounded_and_trains_each_sampled_token_once(request, template):
    sampler = TalkingSampler()
    trajectory = play(request, sampler, template)
    validate(trajectory)
    assert decode(encode(trajectory)).internal_turns == trajectory.internal_turns
    trained: Counter[tuple[int, int]] = Counter()
    for branch in trajectory.branches():
        ids, trains, _ = token_arrays(branch)
        length = 0
        for turn in branch.turns:
            key = (trajectory.id, turn.index)
            length += len(turn.context_ids)
            assert ids[:length].tolist() == sampler.prompts[key]
            sampled = slice(length, length + len(turn.completion_ids))
            assert ids[sampled].tolist() == sampler.completions[key]
            length += len(turn.completion_ids)
            assert length <= template.max_context
            trained.update((turn.index, place) for place in range(trains[sampled].sum()))
    assert set(trained.values()) <= {1}
    assert len(trained) == trajectory.sampled_tokens


@settings(max_examples=60)
@given(request=requests, template=templates)
def test_a_fresh_context_holds_task_notes_summary_and_newest_observation_and_nothing_else(request, template):
    sampler = TalkingSampler()
    trajectory = play(request, sampler, template)
    system_ends = int(request.agent.system)
    for turn in trajectory.turns:
        fresh = turn.parent is None
        assert fresh == (turn.index == 0 or trajectory.label(turn.index - 1) is TurnLabel.SUMMARY)
        if not fresh:
            assert turn.parent == turn.index - 1
        if not fresh or turn.index == 0:
            continue
        text = text_of(sampler, trajectory, turn.index)
        notes = kept_notes(trajectory, turn.index)
        for name, note in notes.items():
            assert text.count(f"[memory] {name}:\n{note}") >= 1
        shown = [trajectory.first_observation, *(trajectory.observations[k] for k in trajectory.env_turns)]
        newest = shown[trajectory.env_steps_before[turn.index]]
        assert trajectory.first_observation in text
        summary = CharTemplate().decode(trajectory.turns[turn.index - 1].completion_ids)
        assert f"{summary}{newest}" in text
        older = set(shown) - {trajectory.first_observation, newest}
        assert not any(observation in text for observation in older)
        # The template writes no alias: those in the prompt are the summary's, as it was sampled.
        aliases = [token for token in sampler.prompts[trajectory.id, turn.index] if token > ALIAS]
        own = sampler.completions[trajectory.id, turn.index - 1]
        assert aliases == [token for token in own if token > ALIAS]
        assert sampler.prompts[trajectory.id, turn.index].count(END) == system_ends + 3


@settings(max_examples=40)
@given(request=requests, template=templates, until=st.integers(0, 59))
def test_the_record_leads_to_the_same_prompts_and_the_same_observations_again(request, template, until):
    sampler = TalkingSampler()
    trajectory = play(request, sampler, template)
    report = asyncio.run(replay(trajectory, MemoryRock()))
    assert report.identical, report.divergence
    if until < len(trajectory.turns):
        cut = replace(
            trajectory,
            turns=trajectory.turns[:until],
            actions=trajectory.actions[:until],
            observations=trajectory.observations[:until],
        )
        found = prompt_after(
            cut, request.agent, template, instruction=f"Solve {trajectory.task_id}.", max_tokens=MAX_TOKENS
        )
        wanted = trajectory.turns[until]
        assert found.ids.tolist() == sampler.prompts[trajectory.id, until]
        assert (found.parent, found.label) == (wanted.parent, trajectory.label(until))


@settings(max_examples=40)
@given(request=requests, anchor=st.integers(0, 40))
def test_a_rollout_from_a_later_turn_has_the_notes_of_then_and_sends_only_actions(request, anchor):
    template = CharTemplate(2500)
    source = play(request, TalkingSampler(), template)
    done = source.played()
    anchor = min(anchor, len(done) - 1)
    if anchor < 1:
        return
    start = Start(source.start.env_seed, source.first_observation, done[:anchor], resume_seed=9)
    again = replace(request, start=start, seed=request.seed + 1, agent=replace(request.agent, max_turns=60))
    sampler = TalkingSampler()
    trajectory = play(again, sampler, template)  # a prefix with anything but its actions would diverge
    validate(trajectory)
    assert trajectory.failure is None
    assert trajectory.turns
    text = text_of(sampler, trajectory, 0)
    before = source.env_turns[anchor - 1] + 1
    for name, note in kept_notes(source, before).items():
        assert f"[memory] {name}:\n{note}" in text
    assert text.endswith(trajectory.first_observation) or "[memory]" in text
    assert asyncio.run(replay(trajectory, MemoryRock())).identical


def test_a_prefix_too_long_for_the_context_is_shown_by_its_end():
    request = a_request(agent=horizon(memory_chars=0), max_tokens=4, params={"goal": 99})
    long = play(request, ScriptedSampler(), CharTemplate(100_000))
    start = Start(3, long.first_observation, long.played()[:50], resume_seed=9)
    template = CharTemplate(ASK + 500)
    sampler = ScriptedSampler()
    trajectory = play(replace(request, start=start), sampler, template)
    text = text_of(sampler, trajectory, 0)
    assert text.startswith(f"Solve train/7.{long.first_observation}")
    assert "turns are left out" in text
    assert long.observations[0] not in text
    assert text.endswith(f"{long.observations[48]}{long.actions[49]}{trajectory.first_observation}")
    room = 0.75 * template.max_context
    assert len(sampler.prompts[trajectory.id, 0]) <= min(
        room, template.max_context - 4 - ASK - 3 - SUMMARY_TOKENS
    )


def test_internal_turns_are_recorded_and_count_but_never_reach_the_environment():
    request = a_request(agent=horizon(compact_at=0.2), max_tokens=MAX_TOKENS, params={"goal": 99})
    trajectory = play(request, TalkingSampler(), CharTemplate(2000))
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert len(trajectory.turns) == 60
    summaries = [k for k in trajectory.internal_turns if trajectory.label(k) is TurnLabel.SUMMARY]
    assert len(summaries) > 1
    assert len(summaries) < len(trajectory.internal_turns)
    assert all(trajectory.observations[k] == "" for k in summaries)
    assert not any(trajectory.actions[k].startswith("memory") for k in trajectory.env_turns)
    assert sum(trajectory.turn_rewards) == sum(
        trajectory.actions[k].startswith("a") for k in trajectory.env_turns
    )
    mistyped = [k for k in trajectory.internal_turns if trajectory.actions[k] == "memory write b"]
    assert mistyped
    assert all(trajectory.turn_faults[k] is TurnFault.ILLEGAL for k in mistyped)
    illegal = [k for k in trajectory.env_turns if trajectory.actions[k].startswith("d")]
    assert trajectory.illegal_actions == len(mistyped) + len(illegal)


def test_without_memory_a_call_of_it_is_an_action():
    request = a_request(
        agent=horizon(memory_chars=0, max_turns=20), max_tokens=MAX_TOKENS, params={"goal": 99}
    )
    trajectory = play(request, TalkingSampler(notes=1.0), CharTemplate(4000))
    assert trajectory.internal_turns == ()
    assert any(action.startswith("memory") for action in trajectory.actions)


def test_a_context_without_room_for_answer_and_summary_is_refused_by_name():
    request = a_request(agent=horizon(), max_tokens=4)
    trajectory = play(request, ScriptedSampler(), CharTemplate(ASK))
    assert trajectory.failure is not None
    assert trajectory.failure.code == "invalid_argument"
    assert "agent.summary_tokens" in trajectory.failure.message


def test_a_task_that_does_not_fit_a_fresh_context_ends_the_rollout():
    request = a_request(agent=horizon(memory_chars=0, compact_at=1.0), max_tokens=4, params={"goal": 99})
    template = CharTemplate(
        ASK + 3 + SUMMARY_TOKENS + 4 + 60
    )  # the first context fits, but not one with a summary
    sampler = ScriptedSampler()
    trajectory = play(replace(request, agent=replace(request.agent, summary_tokens=400)), sampler, template)
    assert trajectory.failure is not None  # 400 tokens leave nothing
    trajectory = play(request, sampler, template)
    assert trajectory.failure is None
    assert trajectory.stop_reason in (StopReason.CONTEXT_FULL, StopReason.MAX_TURNS)
    for turn in trajectory.turns:
        asked = SUMMARY_TOKENS if trajectory.label(turn.index) is TurnLabel.SUMMARY else 4
        assert len(sampler.prompts[trajectory.id, turn.index]) + asked <= template.max_context


@pytest.mark.parametrize("kind", ["chat", "long_horizon"])
def test_an_expert_of_a_long_task_is_told_in_contexts_that_fit(kind):
    actions = iter("bc" * 25 + "aaa")
    request = a_request(agent=AgentConfig(max_turns=60), params={"goal": 3}, max_tokens=4)
    told = asyncio.run(
        record_expert(request, rock=MemoryRock(), oracle=lambda seen: next(actions), template=CharTemplate())
    )
    template = CharTemplate(ASK + 400)
    agent = horizon(kind=kind, summary_tokens=40, system=False) if kind == "long_horizon" else AgentConfig()
    again = asyncio.run(
        retell(told, "again", template=template, agent=agent, instruction="Solve it.", max_tokens=4)
    )
    if kind == "chat":
        assert again is None
        return
    assert again is not None
    validate(again)
    assert again.is_expert
    assert len(again.internal_turns) > 1
    assert all(len(again.turns[k].completion_ids) <= 40 for k in again.internal_turns)
    assert all(again.actions[k].startswith("Done so far: ") for k in again.internal_turns)
    assert [turn.action for turn in again.played()] == list(told.actions)
    assert asyncio.run(replay(again, MemoryRock())).identical
    for branch in again.branches():
        assert len(token_arrays(branch)[0]) <= template.max_context
    back = asyncio.run(
        retell(again, "back", template=CharTemplate(), agent=AgentConfig(), instruction="", max_tokens=4)
    )
    assert back is not None
    assert (back.actions, back.internal_turns, back.turn_labels) == (told.actions, (), ())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"internal_turns": (1, 0)}, "internal_turns is"),
        ({"internal_turns": (99,)}, "internal_turns is"),
        ({"internal_turns": (0,)}, "have rewards"),
    ],
)
def test_a_record_with_impossible_internal_turns_is_refused(changes, named):
    trajectory = play(a_request(params={"goal": 2}), ScriptedSampler(), CharTemplate())
    trajectory = replace(trajectory, turn_rewards=(1.0,) * len(trajectory.turns))
    validate(trajectory)
    with pytest.raises(InvalidTrajectory, match=named):
        validate(replace(trajectory, **changes))
