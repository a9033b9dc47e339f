"""Rollouts in the formats of others: what is written comes back, and what cannot be read is named."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from agent_runtime.store import encode, read_segment, write_segment
from agent_runtime.types import Trajectory, Turn, TurnLabel, VersionTokens
from ale.cli import app
from ale.errors import RecordError
from ale.replay.interchange.atif import atif_of, decode_atif, encode_atif, rollout_of
from ale.replay.interchange.chat import decode_chat, encode_chat
from ale.replay.interchange.exchanging import read_foreign
from ale.replay.interchange.swe_agent import decode_swe_agent, encode_swe_agent

KEPT = Path(__file__).parents[1] / "kept" / "every_field.traj"


def kept() -> list[Trajectory]:
    return list(read_segment(KEPT))


def turn(index: int, parent: int | None, context: list[int], completion: list[int]) -> Turn:
    logprobs = -np.arange(1, len(completion) + 1, dtype=np.float32) / 7
    return Turn(
        index, parent, np.array(context, np.int32), np.array(completion, np.int32), logprobs, "stop", 4
    )


def with_sub_agents() -> Trajectory:
    """Two sub-agents, one of two calls and one of one, between and behind the calls of the agent itself."""
    sub, main = TurnLabel.SUB_AGENT, TurnLabel.MAIN
    turns = (
        turn(0, None, [1, 2], [3]),
        turn(1, None, [9], [8, 7]),
        turn(2, 1, [6], [5]),
        turn(3, 0, [4, 4], [3, 3]),
        turn(4, None, [11], []),
    )
    plain = kept()[0]
    return replace(
        plain,
        turns=turns,
        actions=tuple("abcde"),
        observations=("A", "B", "C", "D", ""),
        observation_hashes=tuple(bytes([n] * 8) for n in range(5)),
        turn_rewards=(0.0, 0.5, 0.0, -0.25, 0.0),
        turn_faults=(),
        turn_labels=(main, sub, sub, main, sub),
        internal_turns=(),
    )


def over_new_weights(second: int = 1) -> Trajectory:
    plain = with_sub_agents()
    first = replace(plain.turns[1], policy_version=(VersionTokens(4, 1), VersionTokens(5, second)))
    return replace(plain, turns=(plain.turns[0], first, *plain.turns[2:]))


@pytest.mark.parametrize(
    "trajectory",
    [*kept(), with_sub_agents(), over_new_weights()],
    ids=["whole", "failed", "sub-agents", "over new weights"],
)
def test_a_rollout_comes_back_from_atif_as_it_was(trajectory: Trajectory) -> None:
    document = encode_atif(trajectory)
    assert encode(rollout_of(decode_atif(document, "x"), "x")) == encode(trajectory)


def test_atif_with_versions_of_other_tokens_is_refused() -> None:
    spoilt = encode_atif(over_new_weights(second=2))
    with pytest.raises(RecordError, match=r"contradicts itself: ValueError: expected spans .* 2 tokens"):
        rollout_of(decode_atif(spoilt, "x"), "x")


def test_atif_has_whole_prompts_and_nests_sub_agents() -> None:
    document = atif_of(with_sub_agents())
    assert [(step.source, step.message) for step in document.steps[1:]] == [("agent", "a"), ("agent", "d")]
    assert [step.step_id for step in document.steps] == [1, 2, 3]
    last = document.steps[2].metrics
    assert last is not None
    assert (last.prompt_token_ids, last.completion_token_ids) == ([1, 2, 3, 4, 4], [3, 3])
    assert last.logprobs == [float(np.float32(-1 / 7)), float(np.float32(-2 / 7))]
    nested = document.subagent_trajectories or []
    assert [[step.message for step in each.steps] for each in nested] == [["b", "c"], ["e"]]
    refs = [
        result.subagent_trajectory_ref[0].trajectory_id
        for step in document.steps
        for result in (step.observation.results if step.observation else [])
        if result.subagent_trajectory_ref
    ]
    assert refs == [each.trajectory_id for each in nested]


FOREIGN = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s",
    "agent": {"name": "other", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be good."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Do it."}]},
        {
            "step_id": 3,
            "source": "agent",
            "message": "I look.",
            "tool_calls": [{"tool_call_id": "1", "function_name": "ls", "arguments": {"path": "/"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "a\nb"}]},
            "metrics": {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]},
        },
        {"step_id": 4, "source": "agent", "message": "copied", "is_copied_context": True},
        {
            "step_id": 5,
            "source": "agent",
            "message": "Done.",
            "metrics": {"prompt_token_ids": [1, 2, 3, 4], "completion_token_ids": [5, 6]},
        },
        {"step_id": 6, "source": "user", "message": "Thanks."},
    ],
}


def foreign(**changes: object) -> Trajectory:
    return rollout_of(decode_atif(json.dumps({**FOREIGN, **changes}).encode(), "f"), "f")


def test_a_document_of_somebody_else_is_read() -> None:
    found = foreign()
    assert (found.id, found.env, found.first_observation) == ("s", "other@2", "Be good.\n\nDo it.")
    assert found.actions == ('I look.\nls {"path":"/"}', "Done.")
    assert found.observations == ("a\nb", "Thanks.")
    assert [each.context_ids.tolist() for each in found.turns] == [[1, 2], [4]]
    assert [each.parent for each in found.turns] == [None, 0]
    assert found.turns[0].logprobs.tolist() == [-0.5]
    assert np.isnan(found.turns[1].logprobs).all()
    assert not found.has_reward  # nobody gave one, so nobody may learn from it
    assert found.failure is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": "ATIF-v2.0"}, "expected ATIF-v1.0 to ATIF-v1.8"),
        ({"steps": []}, "has no steps"),
        ({"colour": 1}, "unknown field `colour`"),
        ({"steps": [{"step_id": 1, "source": "robot", "message": ""}]}, "robot"),
        ({"agent": {"name": "x"}}, "version"),
        ({"extra": {"ale": {"id": 3}}}, "contradicts itself"),
        (
            {
                "steps": [
                    {"step_id": 1, "source": "user", "message": [{"type": "image"}]},
                    *FOREIGN["steps"][2:],
                ]
            },
            "holds image, expected text alone",
        ),
    ],
)
def test_what_is_no_document_is_one_clear_error(changes: dict[str, object], said: str) -> None:
    with pytest.raises(RecordError, match=said):
        foreign(**changes)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000]
)
def test_bytes_that_are_none_are_refused(content: bytes) -> None:
    for decoded in (decode_atif, decode_swe_agent):
        with pytest.raises(RecordError, match="x is no"):
            decoded(content, "x")
    if content.strip():
        with pytest.raises(RecordError, match="x line 1 holds no chat messages"):
            list(decode_chat(content.splitlines(), "x"))


def test_a_damaged_document_of_ours_never_ends_in_another_error() -> None:
    """Each value of a document in turn is replaced by others; it is read, or refused by a `RecordError`."""
    whole = json.loads(encode_atif(with_sub_agents()))
    places: list[tuple[object, object]] = []

    def walk(value: object) -> None:
        pairs = (
            list(value.items())
            if isinstance(value, dict)
            else list(enumerate(value))
            if isinstance(value, list)
            else []
        )
        for key, each in pairs:
            places.append((value, key))
            walk(each)

    walk(whole)
    for holder, key in places:
        before = holder[key]  # type: ignore[index]
        for wrong in (None, -1, 1e300, "x", [], {}, [[]], 2**70):
            holder[key] = wrong  # type: ignore[index]
            with contextlib.suppress(RecordError):
                list(rollout_of(decode_atif(json.dumps(whole).encode(), "d"), "d").branches())
        holder[key] = before  # type: ignore[index]


def test_chat_lines_come_back_with_texts_and_reward() -> None:
    done, failed = kept()
    found = list(decode_chat([encode_chat(done), b"\n", encode_chat(failed)], "c"))
    assert [each.id for each in found] == [done.id, failed.id]
    assert found[0].actions == tuple(done.actions[turn] for turn in done.env_turns)
    assert (found[0].reward, found[0].passed) == (done.reward, done.passed)
    assert not found[1].has_reward
    called = {"role": "assistant", "content": None, "tool_calls": [{"a": 1}]}
    calls = json.dumps({"messages": [{"role": "user", "content": "hi"}, called]}).encode()
    assert next(decode_chat([calls], "c")).actions == ('{"a":1}',)
    with pytest.raises(RecordError, match="no message of an assistant among 1"):
        list(decode_chat([b'{"messages": [{"role": "user", "content": "hi"}]}'], "c"))


def test_swe_agents_files_come_back_with_texts() -> None:
    done = kept()[0]
    found = decode_swe_agent(encode_swe_agent(done), "s")
    assert found.actions == tuple(done.actions[turn] for turn in done.env_turns)
    assert found.first_observation == done.first_observation
    written = json.loads(encode_swe_agent(done))
    assert [entry["message_type"] for entry in written["history"][:2]] == ["observation", "action"]


def test_the_commands_write_and_read_whole_folders(tmp_path: Path) -> None:
    same_id = replace(kept()[0], seed=9)
    write_segment(tmp_path / "run" / "trajectories" / "step-000001.rollouts", [*kept(), same_id])

    def ale(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["replay", *words])
        return done.exit_code, f"{done.output}{done.exception or ''}"

    for kind, name in (("atif", "a"), ("chat", "c.jsonl"), ("swe-agent", "s")):
        code, said = ale("export", str(tmp_path / "run"), "--format", kind, "--out", str(tmp_path / name))
        assert (code, "3 rollouts in" in said) == (0, True), said
        assert ale("export", str(tmp_path / "run"), "--format", kind, "--out", str(tmp_path / name))[0] != 0
    assert len(list((tmp_path / "a").iterdir())) == 3
    (tmp_path / "a" / "zz.json").write_text("{}")
    code, said = ale(
        "import", str(tmp_path / "a"), str(tmp_path / "c.jsonl"), "--out", str(tmp_path / "back")
    )
    assert code != 0
    assert "1 of 5 files cannot be read; 6 rollouts of others were kept" in said.replace("\n", " ")
    back = list(read_segment(tmp_path / "back" / "trajectories" / "imported.rollouts"))
    assert sorted(map(encode, back[:3])) == sorted(map(encode, [*kept(), same_id]))
    assert ale("import", str(tmp_path / "s"), "--out", str(tmp_path / "back"))[0] != 0  # never written again
    assert ale("import", str(tmp_path / "gone.json"), "--out", str(tmp_path / "new"))[0] != 0
    assert not (tmp_path / "new").exists()


def test_an_endless_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RecordError, match="1099511627776 bytes of memory, the budget is 268435456"):
        list(read_foreign(path))
