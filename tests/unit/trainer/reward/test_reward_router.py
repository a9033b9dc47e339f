"""Which worker rewards which rollout, and how its rewards come to the algorithms and the token ledger."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from reward_cases import answer_of, config_of, played, reward, sample_of, solved

from agent_runtime import frames
from agent_runtime.store import encode
from agent_runtime.types import RolloutFailure, StopReason, Trajectory, TurnFault
from ale.config import expand, read_toml, render, resolve
from ale.replay.showing import transcript
from rock_env.errors import UnknownName
from rock_env.plugins import load, names
from trainer.algo.base import AlgorithmSpec, credit_step
from trainer.algo.terms.returns import chunk_returns
from trainer.data.build import build_batch
from trainer.data.screen import screened_credits
from trainer.errors import BatchError, ConfigError, RunFolderError
from trainer.reward.base import Answer, RewardSpec, Sample
from trainer.reward.rule import final_answer

CHECKED = {"worker": "rule", "options": {"check": "final_answer"}}
LEGAL = {"worker": "rule", "options": {"check": "legal_turns"}}


def by_length(sample: Sample) -> Answer:
    """A rule as a user writes one: each turn earns its number, the whole earns a half."""
    return Answer(0.5, tuple(float(n) for n in range(1, len(sample.trajectory.turns) + 1)))


def one_too_few(sample: Sample) -> Answer:
    return Answer(turn_rewards=(0.0,) * (len(sample.trajectory.turns) - 1))


def not_finite(sample: Sample) -> Answer:
    return Answer(math.nan)


def a_number(sample: Sample) -> Answer:
    return 1.0  # type: ignore[return-value]


def broken(sample: Sample) -> Answer:
    raise KeyError("a field that this task lacks")


def own(function: str) -> dict[str, object]:
    return {"worker": "rule", "options": {"check": f"test_reward_router:{function}"}}


@pytest.mark.parametrize("index", range(40))
def test_the_rule_on_math_says_what_the_environment_says(index: int) -> None:
    answer = answer_of(index)
    for said in (
        f"\\boxed{{{', '.join(answer)}}}",
        "\n".join(["I think:", ", ".join(answer)]),
        "\\boxed{1234567}",
        "no",
    ):
        trajectory = played(said, index=index)
        assert final_answer(sample_of(trajectory)).reward == trajectory.reward == float(trajectory.passed)


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("It is \\boxed{1} or\n\\boxed{ 42 }", "42", True),
        ("$42$.", "42", True),
        ("-0.75", "-3/4", True),
        ("\\boxed{-\\frac{6}{8}}", "-3/4", True),
        ("\\dfrac{3}{4}.", "3/4", True),
        ("2\\frac{1}{2}", "21/2", False),
        ("\\boxed{\\frac{1}{2}3}", "1/23", False),
        ("−6/8", ["-3/4"], True),
        ("1,234", 1234, True),
        ("1,234", ["1", "234"], True),
        ("2, -3", ["2", "-3"], True),
        ("-3, 2", ["2", "-3"], False),
        ("2", ["2", "-3"], False),
        ("42, 43", "42", False),
        ("12,34", "1234", False),
        ("42 apples", "42", False),
        ("42 or 43", "42", False),
        ("0.33", "1/3", False),
        ("\\boxed{42}, no: \\boxed{41}", "42", False),
    ],
)
def test_an_answer_is_the_numbers_and_nothing_else(said: str, answer: object, right: bool) -> None:
    sample = sample_of(played(said))
    asked = replace(sample, task=replace(sample.task, payload=json.dumps({"answer": answer})))
    assert final_answer(asked).reward == float(right)


@pytest.mark.parametrize("said", ["1/0", "\\boxed{}", "\\boxed{7} then \\boxed{1/0}", "9" * 10_000, ""])
def test_an_odd_answer_is_wrong_and_no_error(said: str) -> None:
    assert final_answer(sample_of(played(said))).reward == 0.0


def test_a_task_without_an_answer_is_no_zero(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no answer to compare with"):
        reward(config_of(CHECKED, env="frozen_lake"), [played("right", env="frozen_lake")], tmp_path)


def test_without_a_route_nothing_changes(tmp_path: Path) -> None:
    rollouts = [solved(), played("wrong")]
    found, metrics = reward(config_of(), rollouts, tmp_path)
    assert list(map(encode, found)) == list(map(encode, rollouts))
    assert all(now is then for now, then in zip(found, rollouts, strict=True))
    assert (metrics["reward/judged"], metrics["reward/asked"]) == (0, 0)


def test_the_first_route_that_fits_rewards(tmp_path: Path) -> None:
    rollouts = [solved(n) for n in range(12)] + [solved(n, split="held_out") for n in range(2)]
    families = [json.loads(sample_of(t).task.payload)["family"] for t in rollouts]
    first = families[0]
    assert len(set(families)) > 1
    routes = [
        {**own("by_length"), "match": {"env": "math", "split": "train", "family": first[:3] + "*"}},
        {**own("not_finite"), "match": {"no_such_field": "*"}},
        {**CHECKED, "match": {"split": "tr?in"}},
    ]
    found, _ = reward(config_of(*routes), rollouts, tmp_path)
    sources = [t.reward_source.raw if t.reward_source else None for t in found]
    for t, family, raw in zip(found, families, sources, strict=True):
        if t.task_id.startswith("held_out"):
            assert raw is None
        elif family[:3] == first[:3]:
            assert (raw, t.reward) == ("", 0.5)
        else:
            assert raw
            assert raw.startswith("expected")


def test_a_rule_that_was_mended_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails stops the run, which goes on with the mended one: what the broken one said first must not count."""
    monkeypatch.syspath_prepend(tmp_path)
    rule = {"worker": "rule", "options": {"check": "mended_rule:score"}}
    asked = []
    for value in (0.25, 0.25, 0.75):
        code = f"from trainer.reward.base import Answer\ndef score(sample): return Answer(reward={value})\n"
        (tmp_path / "mended_rule.py").write_text(code)
        importlib.invalidate_caches()
        sys.modules.pop("mended_rule", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        (found,), metrics = reward(config_of(rule), [solved()], tmp_path / "run")
        asked.append((found.reward, metrics["reward/asked"]))
    assert asked == [(0.25, 1), (0.25, 0), (0.75, 1)]


def test_a_record_of_before_reward_workers_reads_as_it_did() -> None:
    fields = msgspec.msgpack.decode(encode(solved()))
    del fields["reward_source"]
    read = frames.decode(memoryview(msgspec.msgpack.encode(fields)), Path("old.traj"), 0)
    assert (read.reward_source, read.env_reward, read.env_turn_rewards) == (None, 1.0, (1.0,))


def test_a_transcript_says_who_rewarded(tmp_path: Path) -> None:
    (found,), _ = reward(config_of({**own("by_length")}), [solved()], tmp_path)
    *_, end = transcript(found, tokens=False)
    assert "passed, reward 0.5 (of rule 2; the environment's 1)," in end
    *_, end = transcript(solved(), tokens=False)
    assert "passed, reward 1, " in end


def test_failed_and_silent_rollouts_are_not_judged(tmp_path: Path) -> None:
    failed = replace(
        solved(),
        failure=RolloutFailure("env_lost", "x", 0),
        reward=math.nan,
        passed=False,
        stop_reason=StopReason.FAILED,
    )
    nothing: tuple[()] = ()
    silent = replace(
        solved(),
        turns=nothing,
        actions=nothing,
        observations=nothing,
        observation_hashes=nothing,
        turn_rewards=nothing,
    )
    found, metrics = reward(config_of(own("by_length")), [failed, silent], tmp_path)
    assert found == [failed, silent]
    assert metrics["reward/judged"] == 0


def three_turns(**names: str) -> Trajectory:
    return replace(played("right", "left", "right", env="frozen_lake", **names), turn_rewards=(0.0, 0.0, 0.0))


@pytest.mark.parametrize("algo", ["ipa", "step_reinforce", "gigpo"])
def test_rewards_per_turn_reach_the_credit(tmp_path: Path, algo: str) -> None:
    """`G_k = r_k + gamma G_(k+1)`, `G_K = r_K + R`, of the worker's r and R."""
    gamma = 0.5
    route = {**own("by_length"), "turn_weight": 0.1}
    found, _ = reward(config_of(route, env="frozen_lake"), [three_turns(), three_turns(name="u")], tmp_path)
    assert found[0].turn_rewards == pytest.approx((0.1, 0.2, 0.3))
    spec = load("ale.algorithms", algo)
    assert isinstance(spec, AlgorithmSpec)
    options = {"ipa": {"baseline": "none"}, "step_reinforce": {}, "gigpo": {}}[algo]
    algorithm = spec.build(spec.options(turn_rewards=True, gamma=gamma, **options))
    returns = chunk_returns(0.5, 3, gamma, np.array([0.1, 0.2, 0.3]))
    assert returns == pytest.approx([0.1 + gamma * (0.2 + gamma * 0.8), 0.2 + gamma * 0.8, 0.8])
    plain = spec.build(spec.options(turn_rewards=False, gamma=gamma, **options))
    credits = credit_step(algorithm, [found[0], replace(found[1], turn_rewards=(0.0, 0.0, 0.0))])
    unmoved = credit_step(plain, found)
    assert not np.allclose(credits[0].advantage_K, unmoved[0].advantage_K)
    if algo == "ipa":
        assert credits[0].advantage_K == pytest.approx(returns)


def test_starpo_adds_them_up(tmp_path: Path) -> None:
    found, _ = reward(config_of(own("by_length"), env="frozen_lake"), [three_turns()], tmp_path)
    spec = load("ale.algorithms", "starpo")
    assert isinstance(spec, AlgorithmSpec)
    other = replace(found[0], id="u", turn_rewards=(0.0, 0.0, 0.0))
    credit = credit_step(spec.build(spec.options(turn_rewards=True, keep_share=1.0)), [found[0], other])
    assert credit[0].advantage_K[0] > 0 > credit[1].advantage_K[0]


def test_legal_turns_blames_faulty_ones(tmp_path: Path) -> None:
    rollout = replace(three_turns(), turn_faults=(TurnFault.NONE, TurnFault.ILLEGAL, TurnFault.NONE))
    (found,), _ = reward(config_of(LEGAL, env="frozen_lake"), [rollout], tmp_path)
    assert (found.turn_rewards, found.reward) == ((0.0, -1.0, 0.0), rollout.reward)


def test_a_sample_without_a_reward_is_dropped_by_name_and_moves_no_baseline(tmp_path: Path) -> None:
    unanswered = {
        "worker": "judge",
        "options": {"url": "http://127.0.0.1:1/v1", "model": "m"},
        "match": {"split": "held_out"},
    }
    rollouts = [solved(name="a"), played("no", name="b"), solved(split="held_out", name="c", group="g")]
    found, _ = reward(config_of(unanswered, CHECKED, attempts=1), rollouts, tmp_path)
    spec = load("ale.algorithms", "rloo")
    assert isinstance(spec, AlgorithmSpec)
    algorithm = spec.build(spec.options())
    credits = screened_credits(found, partial(credit_step, algorithm))
    assert [float(c.advantage_K.sum()) for c in credits] == [1.0, -1.0, 0.0]
    _, ledger = build_batch(found, credits, token_budget=8)
    assert ledger.metrics() == {
        "tokens/total": 6,
        "tokens/experts": 0,
        "tokens/reused": 0,
        "tokens/trained": 4,
        "tokens/imitated": 0,
        "tokens/dropped/failed/reward_unanswered": 2,
        "trajectories/dropped/failed/reward_unanswered": 1,
    }


ASKS_FOR_TURNS = [
    LEGAL,
    {"worker": "judge", "options": {"url": "http://j/v1", "model": "m", "gives": "both"}},
    {"worker": "generative", "options": {"model": "m", "gives": "turns"}},
    {"worker": "sandbox", "options": {"command": "true", "gives": "turns"}},
]


@pytest.mark.parametrize("route", ASKS_FOR_TURNS, ids=lambda route: route["worker"])
def test_rewards_per_turn_that_nobody_would_learn_are_refused_before_the_run(route) -> None:
    expand(config_of(route))
    with pytest.raises(ConfigError, match=r"Set algo_options\.turn_rewards=true"):
        expand(config_of(route).model_copy(update={"algo_options": {"turn_rewards": False}}))
    with pytest.raises(ConfigError, match=r"'grpo' as configured would learn nothing.*choose an algorithm"):
        expand(config_of(route, algo="grpo"))


def test_a_rule_of_ones_own_that_rewards_turns_in_vain_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'grpo' as configured would learn nothing"):
        reward(config_of(own("by_length"), algo="grpo"), [solved()], tmp_path)
    reward(config_of(CHECKED, algo="grpo"), [solved()], tmp_path)


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        ("one_too_few", BatchError, "0 rewards for the 1 turns of trajectory 't'"),
        ("not_finite", ConfigError, "expected finite numbers"),
        ("a_number", ConfigError, "it returned a float, expected an Answer or NoAnswer"),
        (
            "broken",
            ConfigError,
            "'test_reward_router:broken' failed on trajectory 't' of task train/0: KeyError",
        ),
    ],
)
def test_a_worker_that_breaks_its_contract_stops_the_run(
    tmp_path: Path, function: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=rf"{said}.*[Ff]ix the worker"):
        reward(config_of(own(function)), [solved()], tmp_path)


def test_a_damaged_file_of_answers_is_named(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "answers.jsonl").write_text("{}\n")
    with pytest.raises(RunFolderError, match=r"line 1 of .*answers\.jsonl"):
        reward(config_of(CHECKED), [solved()], tmp_path)


def test_every_installed_worker_is_a_spec_and_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "rewards.md").read_text(encoding="utf-8")
    for name in names("ale.rewards"):
        spec = load("ale.rewards", name)
        assert isinstance(spec, RewardSpec)
        assert spec.name == name
        assert f"`{name}`" in page
        for option in spec.options.model_fields:
            assert f"`{option}`" in page, f"{name}.{option}"


def test_routes_are_resolved_and_rerun_the_run(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'env = "math"\n[[reward.routes]]\nworker = "judge"\nmatch = {split = "train"}\n'
        'options = {url = "http://j/v1", model = "m"}\n'
    )
    made = resolve(file=file).config
    assert made.reward.routes[0].options["key_env"] == "OPENAI_API_KEY"
    again = tmp_path / "config.toml"
    again.write_text(render(made), encoding="utf-8")
    assert read_toml(again)["reward"]["routes"][0]["match"] == {"split": "train"}
    assert resolve(file=again).config == made
    override = 'reward.routes=[{worker = "rule", options = {check = "final_answer"}}]'
    assert resolve(options={"env": "math"}, overrides=[override]).config.reward.routes[0].worker == "rule"


@pytest.mark.parametrize(
    ("routes", "error", "said"),
    [
        ([{"worker": "judg"}], UnknownName, "Did you mean 'judge'"),
        (
            [{"worker": "judge", "options": {"url": "http://j", "mode": "m"}}],
            (ConfigError, UnknownName),
            "mode",
        ),
        ([{"worker": "judge", "options": {"url": "j:80", "model": "m"}}], ConfigError, "'url'"),
        (
            [{"worker": "rule", "options": {"check": "final_answer"}, "turn_weight": math.inf}],
            ValueError,
            "finite",
        ),
        ([{"worker": "rule"}], ConfigError, "'check'"),
    ],
)
def test_a_wrong_route_is_refused_before_the_run(routes, error, said) -> None:
    with pytest.raises(error, match=said):
        expand(config_of(*routes))


@pytest.mark.parametrize(
    ("key", "url", "said"),
    [
        ("sk-7\nsecret", "http://j/v1", r"JUDGE_KEY cannot be sent.*got 11 characters"),
        ("schlüssel-secret", "http://j/v1", r"JUDGE_KEY cannot be sent.*got 16 characters"),
        ("sk-7", "http://j:port/v1", r"url is none.*j:port/v1/chat/completions"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused_at_once(tmp_path, monkeypatch, key, url, said) -> None:
    monkeypatch.setenv("JUDGE_KEY", key)
    route = {"worker": "judge", "options": {"url": url, "model": "m", "key_env": "JUDGE_KEY"}}
    with pytest.raises(ConfigError, match=said) as caught:
        reward(config_of(route), [solved()], tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("check", ["final_anser", "no_such_module:f", "math:no_such_function", ":"])
def test_a_rule_that_is_not_there_is_refused(tmp_path: Path, check: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match="rule"):
        reward(config_of({"worker": "rule", "options": {"check": check}}), [solved()], tmp_path)
