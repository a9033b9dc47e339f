"""A turn over a change of weights: which version sampled which tokens, from the sampler to the file and back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from agent_session import Session, user
from scripted_world import FIRST_CHAR, CharTemplate, MemoryRock, ScriptedSampler, a_request

from agent_runtime import frames
from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.errors import CorruptTrajectory, InvalidTrajectory
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, completion_fault
from agent_runtime.store import decode, encode, read_segment, write_segment
from agent_runtime.types import AgentConfig, VersionTokens, oldest_version

KEPT = Path(__file__).parents[1] / "kept" / "every_field.rollouts"
SPANS = (VersionTokens(6, 9), VersionTokens(7, 15))


class Changing(ScriptedSampler):
    """Answers 24 tokens, 9 of them by version 6 and 15 by version 7."""

    async def sample(self, request):
        logprobs = np.full(24, -0.5, np.float32)
        return Completion(np.full(24, FIRST_CHAR + ord("b"), np.int32), logprobs, "length", SPANS)


def played(sampler):
    request = a_request(params={"goal": 99}, agent=AgentConfig(max_turns=2))
    return asyncio.run(run_rollout(request, rock=MemoryRock(), sampler=sampler, template=CharTemplate()))


def test_the_spans_of_a_completion_are_those_of_its_turn_on_disk_and_back(tmp_path):
    record = played(Changing())
    validate(record)
    assert [turn.spans for turn in record.turns] == [SPANS, SPANS]
    assert [turn.oldest_version for turn in record.turns] == [6, 6]
    write_segment(tmp_path / "a.rollouts", [record])
    (found,) = read_segment(tmp_path / "a.rollouts")
    assert encode(found) == encode(decode(encode(record))) == encode(record)
    assert [turn.policy_version for turn in found.turns] == [SPANS, SPANS]
    assert {type(span) for turn in found.turns for span in turn.spans} == {VersionTokens}
    assert not found.is_expert


def test_the_gateway_records_what_its_sampler_said():
    session = Session()
    call = session.ask([user("go")], "Done.")
    tokens = len(call.completion.ids)
    spans = (VersionTokens(6, 1), VersionTokens(7, tokens - 1))
    call.completion = replace(call.completion, policy_version=spans)
    assert session.record().turns[0].spans == spans


def test_a_turn_of_one_version_is_stored_as_before():
    with KEPT.open("rb") as file:
        payloads = [frame.payload for frame in frames.FrameFile(file, KEPT).walk()]
    assert len(payloads) == 5
    for payload in payloads:
        record = decode(payload)
        assert record.schema_version == 2
        stored, written = msgspec.msgpack.decode(payload), msgspec.msgpack.decode(encode(record))
        for old, new in zip(stored["turns"], written["turns"], strict=True):
            assert {name: new[name] for name in old} == old
            assert isinstance(new["policy_version"], int)
        for turn in record.turns:
            assert turn.spans == (VersionTokens(turn.oldest_version, len(turn.completion_ids)),)
    stored = msgspec.msgpack.decode(encode(played(ScriptedSampler())))
    assert stored["schema_version"] == 3
    assert [turn["policy_version"] for turn in stored["turns"]] == [5, 5]


def test_a_reader_of_before_is_refused_by_the_files_version(tmp_path):
    write_segment(tmp_path / "a.rollouts", [played(ScriptedSampler())])
    with (tmp_path / "a.rollouts").open("rb") as file:
        assert frames.FrameFile(file, tmp_path).version == 3


BROKEN = {
    "one span": (VersionTokens(6, 24),),
    "no span": (),
    "too few tokens": (VersionTokens(6, 9), VersionTokens(7, 14)),
    "neighbours of one version": (VersionTokens(6, 9), VersionTokens(6, 15)),
    "a span without a token": (VersionTokens(6, 0), VersionTokens(7, 24)),
    "an expert's": (VersionTokens(-1, 9), VersionTokens(7, 15)),
    "plain pairs": ((6, 9), (7, 15)),
    "no numbers": (VersionTokens(None, 9), VersionTokens(7, 15)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BROKEN)
def test_spans_that_do_not_hold_the_turns_tokens_are_refused(name):
    record = played(Changing())
    first = replace(record.turns[0], policy_version=BROKEN[name])
    with pytest.raises(InvalidTrajectory, match=r"turn 0: expected (spans of two|policy_version as one)"):
        validate(replace(record, turns=(first, *record.turns[1:])))
    ids, logprobs = first.completion_ids, first.logprobs
    assert completion_fault(Completion(ids, logprobs, "length", SPANS)) == ""
    assert completion_fault(Completion(ids, logprobs, "length", BROKEN[name]))
    if name != "plain pairs":  # which msgpack has for all
        with pytest.raises(CorruptTrajectory, match="not a trajectory of schema 3"):
            decode(encode(replace(record, turns=(first, *record.turns[1:]))))


def test_versions_may_fall_and_the_oldest_is_named():
    assert oldest_version((VersionTokens(7, 3), VersionTokens(5, 1), VersionTokens(6, 2))) == 5
    assert oldest_version(-1) == -1
