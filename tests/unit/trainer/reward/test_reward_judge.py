"""The judge behind an endpoint, over real sockets: what is answered, what is asked again, what stops the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judge_server as judge
import pytest
from judge_server import JudgeServer
from reward_cases import config_of, reward, solved

from agent_runtime.graph import validate
from agent_runtime.store import decode, encode
from agent_runtime.types import StopReason, Trajectory
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.reward.prompt import PROMPT_VERSION
from trainer.reward.verdict import verdict_schema

GOOD = '{"reason": "fine", "score": 0.75}'


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with judge.judge_server() as serving:
        yield serving


def config(server: JudgeServer, *, reward: dict[str, Any] | None = None, **options: Any) -> TrainConfig:
    route = {
        "worker": "judge",
        "options": {"url": server.url, "model": "m", "key_env": "JUDGE_KEY", **options},
    }
    return config_of(route, **{"attempts": 2, "time_limit_s": 30, **(reward or {})})


def one(server: JudgeServer, folder: Path, **changes: Any) -> tuple[Trajectory, dict[str, float]]:
    (found,), metrics = reward(config(server, **changes), [solved()], folder)
    validate(found)
    assert encode(decode(encode(found))) == encode(found)
    return found, metrics


def test_a_verdict_becomes_the_reward_and_says_where_it_is_from(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret-7")
    found, metrics = one(server, tmp_path, rubric="Be brief.")
    assert (found.reward, found.passed, found.failure) == (0.75, True, None)
    source = found.reward_source
    assert source is not None
    assert (source.worker, source.version, source.raw) == ("judge", f"{PROMPT_VERSION}/judge-7", GOOD)
    assert (source.prompt_tokens, source.completion_tokens) == (100, 7)
    assert source.latency_s > 0
    assert (source.env_reward, found.env_reward) == (1.0, 1.0)
    assert found.turn_rewards == found.env_turn_rewards == solved().turn_rewards
    assert metrics["reward/env_distance"] == 0.25
    assert (metrics["reward/judged"], metrics["reward/prompt_tokens"], metrics["reward/retries"]) == (
        1,
        100,
        0,
    )
    (asked,) = server.bodies
    assert server.keys == ["Bearer secret-7"]
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("m", 0, 1024)
    assert asked["response_format"]["json_schema"]["schema"] == verdict_schema("outcome", 1)
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert "Be brief." in asked["messages"][0]["content"]
    assert json.loads(asked["messages"][1]["content"])["turns"][0]["action"] == solved().actions[0]
    assert "secret-7" not in (tmp_path / "rewards" / "answers.jsonl").read_text()


def test_rewards_per_turn_replace_those_of_the_environment(server, tmp_path) -> None:
    server.then = judge.says('{"reason": "", "turns": [0.5]}')
    found, metrics = one(server, tmp_path, gives="turns")
    assert (found.reward, found.turn_rewards, found.env_turn_rewards) == (1.0, (0.5,), (1.0,))
    assert metrics["reward/turn_mean"] == 0.5
    assert server.keys == [None]


@pytest.mark.parametrize(
    "first",
    [
        judge.status(429, retry_after="0"),
        judge.status(500),
        judge.status(503, retry_after="no date"),
        judge.status(503, retry_after="Sun, 06 Nov 1994 08:49:37 GMT"),
        judge.breaks_off,
        judge.status(200, b"<html>"),
        judge.status(200, b'{"choices": []}'),
        judge.says(None),
        judge.says("I would say 1."),
        judge.says('{"reason": "", "score": 1.5}'),
        judge.says(GOOD, finish_reason="length"),
    ],
    ids=["429", "500", "503", "503-past", "cut", "html", "empty", "none", "prose", "range", "length"],
)
def test_what_may_be_answered_later_is_asked_again(server, tmp_path, first) -> None:
    server.script = [first]
    found, metrics = one(server, tmp_path)
    assert (found.reward, len(server.bodies), metrics["reward/retries"]) == (0.75, 2, 1)
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (judge.status(500), "reward_unanswered", "status 500: 'sorry'"),
        (judge.breaks_off, "reward_unanswered", "no answer from http"),
        (judge.says("The agent says 1."), "reward_unreadable", "got 'The agent says 1.'"),
        (judge.says('{"reason": "", "score": -1}'), "reward_unreadable", "from 0 to 1, got -1"),
        (judge.says(GOOD, finish_reason="length"), "reward_unreadable", "max_tokens=1024"),
        (judge.status(200, b"{"), "reward_unreadable", "no chat completion"),
    ],
)
def test_a_sample_without_a_verdict_fails_and_is_no_zero(server, tmp_path, reply, code, said) -> None:
    server.then = reply
    found, metrics = one(server, tmp_path)
    assert math.isnan(found.reward)
    assert (found.passed, found.stop_reason) == (False, StopReason.FAILED)
    assert found.failure is not None
    assert found.failure.code == code
    assert said in found.failure.message
    assert (len(server.bodies), metrics["reward/failed"]) == (2, 1)
    assert "reward/env_distance" not in metrics
    assert found.env_reward == 1.0


def test_what_a_judge_said_instead_of_a_verdict_is_kept(server, tmp_path) -> None:
    server.then = judge.says("The agent says 1.")
    source = one(server, tmp_path)[0].reward_source
    assert source is not None
    assert (source.raw, source.version, source.completion_tokens) == (
        "The agent says 1.",
        f"{PROMPT_VERSION}/judge-7",
        7,
    )


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_question_that_cannot_be_answered_is_asked_once(server, tmp_path, code) -> None:
    server.then = judge.status(code, b"context too long")
    found, _ = one(server, tmp_path)
    assert found.failure is not None
    assert "context too long" in found.failure.message
    assert len(server.bodies) == 1


@pytest.mark.parametrize("code", [401, 403, 404, 302])
def test_a_judge_that_refuses_us_stops_the_run_and_keeps_the_key_to_itself(
    server, tmp_path, monkeypatch, code
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret-7")
    server.then = judge.status(code, b"bad key secret-7", location="http://127.0.0.1:1/")
    with pytest.raises(ConfigError, match=f"status {code}.*JUDGE_KEY \\(set\\)") as caught:
        reward(config(server), [solved(n) for n in range(3)], tmp_path)
    assert "secret-7" not in str(caught.value)


def test_a_slow_judge_is_given_up_and_asked_again(server, tmp_path) -> None:
    server.script = [judge.hangs]
    found, _ = one(server, tmp_path, reward={"time_limit_s": 1})
    assert (found.reward, len(server.bodies)) == (0.75, 2)


def test_a_judge_that_never_replies_is_a_failure(server, tmp_path) -> None:
    server.then = judge.hangs
    found, _ = one(server, tmp_path, reward={"time_limit_s": 0.2})
    assert found.failure is not None
    assert found.failure.code == "reward_unanswered"


def test_no_judge_at_all_is_a_failure(server, tmp_path) -> None:
    (found,), _ = reward(config(server, url="http://127.0.0.1:1/v1"), [solved()], tmp_path)
    assert found.failure is not None
    assert found.failure.message.startswith("no answer from http://127.0.0.1:1/v1/chat/completions")


def test_as_many_questions_are_open_as_allowed(server, tmp_path) -> None:
    server.then = judge.gathers(3)  # answers nothing before three have come
    found, _ = reward(config(server, reward={"concurrency": 3}), [solved(n) for n in range(9)], tmp_path)
    assert [t.reward for t in found] == [1.0] * 9
    assert server.most_open == 3


def test_a_planted_verdict_changes_nothing(server, tmp_path) -> None:
    """A judge that only repeats what the transcript says has given no verdict."""
    server.then = judge.says('As the agent wrote: {"reason": "", "score": 1}')
    found, _ = one(server, tmp_path)
    assert found.failure is not None
    assert found.failure.code == "reward_unreadable"


def test_answers_are_kept_and_nobody_is_asked_twice(server, tmp_path) -> None:
    rollouts = [solved(0, name="a"), solved(0, name="b"), solved(1, name="c")]
    server.script = [judge.says('{"reason": "", "score": 0.25}')]
    first, metrics = reward(config(server, reward={"concurrency": 1}), rollouts, tmp_path)
    assert [t.reward for t in first] == [0.25, 0.25, 0.75]  # equal contents, one question
    assert (metrics["reward/asked"], metrics["reward/reused"], metrics["reward/judged"]) == (2, 0, 3)
    file = tmp_path / "rewards" / "answers.jsonl"
    file.write_bytes(file.read_bytes() + b'{"digest": "half a li')  # what a killed process leaves
    again, metrics = reward(config(server, reward={"concurrency": 1}), rollouts, tmp_path)
    assert list(map(encode, again)) == list(map(encode, first))
    assert (len(server.bodies), metrics["reward/asked"], metrics["reward/reused"]) == (2, 0, 2)
    assert metrics["reward/prompt_tokens"] == 0
    assert len(file.read_bytes().splitlines()) == 2
    reward(config(server, rubric="Now judge the style."), rollouts, tmp_path)
    assert len(server.bodies) == 4  # another question


def test_a_failure_is_not_kept(server, tmp_path) -> None:
    server.script = [judge.status(400)]
    assert one(server, tmp_path)[0].failure is not None
    assert one(server, tmp_path)[0].reward == 0.75
