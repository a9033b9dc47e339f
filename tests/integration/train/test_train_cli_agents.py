"""Training behind CLI agents through the whole path with real processes: sandboxes, agents, gateway, Ray, engines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from calling_llama import calling_llama
from command_line import ale, refused
from flat_branches import token_arrays
from own_agent import own_agent_yaml, shelf_with_own_agent
from own_rule import UNLIKE, write_rule
from safetensors.numpy import load_file

from agent_runtime.agents.install import default_shelf, find_installed
from agent_runtime.agents.spec import load_agent
from agent_runtime.chat import ToolUse
from agent_runtime.graph import validate
from agent_runtime.store import read_segment
from agent_runtime.templates.textual import call_text
from agent_runtime.types import Branch, StopReason, Trajectory
from rock_env.tools import Bash, parse_call
from sandboxes import swe
from sandboxes.swe import handmade

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1800)]

STEPS = 2
SETTINGS: dict[str, Any] = {
    "env_args.source": "handmade",
    "rollout.groups_per_step": 1,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "rollout.concurrency": 3,
    "rollout.token_budget": 16,
    "rollout.time_limit_s": 300,
    "eval.tasks": 1,
    "eval.every": 0,
    "checkpoint.every": 1,
    "algo_options.baseline": "leave_one_out",
    "algo_options.neg_weight": 1.0,
}
TINY: dict[str, Any] = {
    "engine_options.layers": 1,
    "engine_options.width": 16,
    "engine_options.heads": 2,
    "engine_options.max_context": 4096,
    "sampling.max_tokens": 6,
    "optim.lr": 1e-2,
    "rollout.group_size": 3,
    "reward.routes": UNLIKE,
}
"""A model begun from nothing fixes no bug: a rule tells its answers apart, so that there is something to learn."""
CALLING: dict[str, Any] = {
    "engine_options.max_rows": 1,  # long prompts of unequal length would need a mask of their square
    "sampling.max_tokens": 8,
    "optim.lr": 1e-3,
}
AGENTS: dict[str, dict[str, Any]] = {
    "mini-swe-agent": {"rollout.group_size": 6, "agent.max_turns": 6},
    "pi": {"rollout.group_size": 6, "agent.max_turns": 6},
    "qwen-code": {"rollout.group_size": 3, "agent.max_turns": 2, "reward.routes": UNLIKE},
}
"""Rewarded by the hidden tests; `qwen-code`, which opens with 26,000 tokens, plays too little for them to tell apart."""


def train(folder: Path, agent: str, shelf: Path, *, model: str = "tiny", **more: object) -> list[Trajectory]:
    """Train on swe behind an agent; return the rollouts of all steps, checked."""
    write_rule(folder)
    run, settings = folder / "run", {**SETTINGS, **more}
    named = {"env": "swe", "agent": agent, "algo": "ipa", "model": model, "steps": STEPS, "run": run}
    words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
    words += [word for name, value in settings.items() for word in ("-s", f"{name}={as_toml(value)}")]
    done = ale("train", *words, "--quiet", cwd=folder, timeout_s=1500, **around(folder, shelf))
    assert done.returncode == 0, done.stdout + done.stderr
    rollouts = stored(run, STEPS * settings["rollout.group_size"])
    check_learned(
        run, rollouts, apart=[t for path in run.rglob("set_aside-*.rollouts") for t in read_segment(path)]
    )
    return rollouts


def around(folder: Path, shelf: Path) -> dict[str, str]:
    """Return the variables by which commands find the rule and the agents."""
    return {"ALE_AGENTS": str(shelf), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def as_toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {as_toml(part)}' for name, part in value.items())}}}"
    return json.dumps(value)


def stored(run: Path, count: int) -> list[Trajectory]:
    """Return the rollouts; each is a sound record in which every sampled token is in exactly one branch."""
    rollouts = [
        t for path in sorted((run / "trajectories").glob("step-*.rollouts")) for t in read_segment(path)
    ]
    assert len(rollouts) == count
    for t in rollouts:
        assert t.failure is None, t.failure
        assert t.env == swe.ENV.key
        assert t.is_session
        assert "You fix a bug in a small Python project. The visible tests" in t.first_observation
        assert "Its files:" in t.first_observation
        validate(t)
        rows = [token_arrays(branch) for branch in t.branches()]
        assert sum(int(trains.sum()) for _, trains, _ in rows) == t.sampled_tokens
    return rollouts


def check_learned(run: Path, rollouts: list[Trajectory], apart: list[Trajectory]) -> None:
    """Check that each step learned, that all its tokens are accounted for, and that the weights are others.

    `apart` are rollouts that failed, as on a crowded machine, and were sampled again.
    """
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
    assert len(steps) == STEPS
    for record in steps:
        assert record["updates"] > 0
        assert record["tokens/trained"] > 0
        explained = sum(value for name, value in record.items() if name.startswith(fates))
        assert explained == record["tokens/total"]
    assert all(t.failure is not None for t in apart)
    sampled = sum(t.sampled_tokens for t in (*rollouts, *apart))
    assert sum(record["tokens/total"] for record in steps) == sampled > 0
    *_, before, after = (
        load_file(path) for path in sorted((run / "checkpoints").glob("step-*/*.safetensors"))
    )
    assert any((before[name] != after[name]).any() for name in before if name.startswith("model."))


@pytest.mark.turn(1)
def test_two_steps_behind_an_agent_learn_and_lose_no_token(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(own_agent_yaml("insist"))
    shelf = shelf_with_own_agent(tmp_path)
    rollouts = train(tmp_path, "own.yaml", shelf, **TINY)
    for t in rollouts:
        assert t.stop_reason is StopReason.TERMINATED
        assert [turn.parent for turn in t.turns] == [None, 0, 1]  # it insists twice

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = around(tmp_path, shelf)
    measured = ale("eval", str(tmp_path / "run"), "--tasks=1", cwd=elsewhere, **here)
    assert measured.returncode == 0, measured.stderr
    begun = ale("train", "--env=swe", "--agent=own.yaml", "--model=coder", cwd=tmp_path, **here)
    refused(begun, 2, "'coder'", "Choose an instruct model")  # nothing was started
    played = ["rollout", "--env=swe", "--env-arg=source=handmade", "--out=played", "-n2"]
    refused(ale(*played, "--agent=pi", cwd=elsewhere), 2, "--agent pi plays with a model", "--policy RUN")
    done = ale(*played, f"--policy={tmp_path / 'run'}", cwd=elsewhere, **here)
    assert done.returncode == 0, done.stderr
    assert [len(t.turns) for path in elsewhere.rglob("*.rollouts") for t in read_segment(path)] == [3, 3]
    replayed = ale("replay", "run", str(tmp_path / "run"), "--all", cwd=elsewhere)
    assert replayed.returncode != 0
    assert "session of a CLI agent" in replayed.stderr


@pytest.mark.turn(2)
def test_what_a_hugging_face_sampler_gave_is_what_the_record_has(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("NOTED", str(tmp_path / "noted"))
    (tmp_path / "own.yaml").write_text(own_agent_yaml("insist"))
    calls = [ToolUse("", "bash", json.dumps({"command": command})) for command in ("ls", "pwd", "cat *.py")]
    texts = [path.read_text() for path in sorted((Path(__file__).parents[3] / "docs").glob("*.md"))]
    spoken = [*map(call_text, calls), "That is all."]
    model = calling_llama(tmp_path / "model", spoken, texts, context=16384)
    more = {"rollout.group_size": 3, "agent.max_turns": 6, "reward.routes": UNLIKE, "sampler": "noting"}
    rollouts = train(tmp_path, "own.yaml", shelf_with_own_agent(tmp_path), model=model, **{**CALLING, **more})

    noted = [json.loads(line) for line in (tmp_path / "noted").read_text().splitlines()]
    # What the engine saw and gave: the whole sequence, and the last answer's log-probabilities bit for bit.
    given = {(tuple(prompt + ids), tuple(logprobs)) for *_, prompt, ids, logprobs in noted}
    turns = 0
    for branch in (branch for t in rollouts for branch in t.branches()):
        for end in range(branch.shared + 1, len(branch.turns) + 1):
            ids, _, logprobs = token_arrays(Branch(branch.turns[:end]))
            own = len(branch.turns[end - 1].completion_ids)
            assert (tuple(ids.tolist()), tuple(logprobs[-own:].tolist())) in given
            turns += 1
    assert turns == sum(len(t.turns) for t in rollouts) > 3 * len(rollouts)
    assert max(cached for _, _, cached, *_ in noted) > 0
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    mismatches = [record["mismatch/token_abs"] for record in records if record["kind"] == "train"]
    assert len(mismatches) == STEPS
    assert max(mismatches) < 1e-3


def answers(agent: str) -> list[str]:
    """Return what a model behind an agent may say: the fix of the project at hand, a look at it, and that it is done."""
    fixes = []
    for key in handmade.keys("train"):
        edit = parse_call(handmade.load(key).solution[-2])
        assert isinstance(edit, Bash)
        fixes.append(f"*/{key})\n{edit.command}\n;;")
    commands = [
        "\n".join(['case "$PWD" in', *fixes, "esac"]),
        "ls",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",  # so mini-swe-agent is told; for others it is a command
    ]
    tool, more = load_agent(agent).shell_tool, {"is_background": False} if agent == "qwen-code" else {}
    calls = [ToolUse("", tool, json.dumps({"command": command, **more})) for command in commands]
    return [*map(call_text, calls), "That is all."]


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_two_steps_behind_a_real_agent_learn_and_lose_no_token(tmp_path: Path, agent: str) -> None:
    shelf, spec = default_shelf(), load_agent(agent)
    if find_installed(spec, shelf) is None:
        pytest.skip(f"{agent} {spec.version} is NOT tested: not installed. Get it: ale agent install {agent}")
    texts = [path.read_text() for path in sorted((Path(__file__).parents[3] / "docs").glob("*.md"))]
    model = calling_llama(tmp_path / "model", answers(agent), texts, context=65536)
    rollouts = train(tmp_path, agent, shelf, model=model, **CALLING, **AGENTS[agent])
    assert all(t.turns for t in rollouts)
    assert max(len(t.turns) for t in rollouts) > 1
    if "reward.routes" not in AGENTS[agent]:
        assert {t.passed for t in rollouts} == {True, False}
