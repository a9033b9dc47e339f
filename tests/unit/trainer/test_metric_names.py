"""docs/metrics.md defines every number that a run reports, and nothing that no run reports."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import cast

import pytest
from local_fleet import LocalFleet, config_of, local_run, stripped
from random_llama import random_llama
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agent_runtime.store import decode, encode
from agent_runtime.types import RolloutRequest, Trajectory, TurnFault
from rock_env import plugins
from trainer.copies.copying import Copies
from trainer.files.bucket import Bucket
from trainer.metrics import RunSummary

ROOT = Path(__file__).parents[3]
KINDS = ("guard", "train", "warmup", "held_out", "eval")
OPTIONS = {
    "ipa": {
        "learn_faulty": False,
        "baseline": "leave_one_out",
        "behaviour": "paper",
        "turn_rewards": True,
    },
    "grpo": {"correction": "icepop"},
    "ppo": {"value_warmup": 1},
    "reinforce": {"kl_weight": 0.1},
}
APART = {"ipa": {"lambda_rl": 0, "turn_rewards": True}}
"""Options of a further run, where they would hide what the first one shows."""


REWARD = {"ipa": {"routes": [{"worker": "rule", "options": {"check": "legal_turns"}}]}}


def page() -> dict[str, list[str]]:
    """Return the names that each section of the page defines; the reasons of the ledger apart."""
    found: dict[str, list[str]] = {}
    for section in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        kind = section.split("`")[1]
        for table in re.findall(r"(?m)^\| (\w+) \|.*\n\|[-|]+\n((?:\|.*\n)+)", section):
            names = [
                name for row in table[1].splitlines() for name in re.findall("`(.+?)`", row.split("|")[1])
            ]
            found.setdefault("reasons" if table[0] == "reason" else kind, []).extend(names)
    return found


def pattern(name: str) -> re.Pattern[str]:
    """Return what a name on the page stands for: a word in capitals is anything."""
    return re.compile(
        "".join(part if i % 2 == 0 else ".+" for i, part in enumerate(re.split("([A-Z]+)", name)))
    )


def eventful(trajectory: Trajectory) -> Trajectory:
    """Of each group let one rollout succeed, with a turn to regret or far off-policy, and one end before it began."""
    if trajectory.failure is not None or trajectory.index > 1:
        return trajectory
    if trajectory.index == 1:
        return stripped(trajectory)
    faults = (TurnFault.UNDONE, *[TurnFault.NONE] * (len(trajectory.turns) - 1))
    far = tuple(replace(turn, logprobs=turn.logprobs - 3) for turn in trajectory.turns)
    changes = (
        {"turns": far, "turn_faults": ()} if trajectory.group_id.endswith("1") else {"turn_faults": faults}
    )
    return replace(trajectory, reward=1.0, passed=True, **changes)  # type: ignore[arg-type]


class Passing(LocalFleet):
    """A fleet whose policy passes every evaluation."""

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        return [encode(replace(decode(each), passed=True)) for each in super().run(requests, policy_step)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Run every installed algorithm for two eventful steps, and a model that brings its weights."""
    folders = []
    every = [(algo, OPTIONS.get(algo, {})) for algo in plugins.names("ale.algorithms")]
    for algo, options in [*every, *APART.items()]:
        folders.append(tmp_path_factory.mktemp(algo))
        config = config_of(
            algo=algo,
            algo_options=options,
            reward=REWARD.get(algo, {}),
            eval={"apart": ["train"]},
            guard={"mismatch": 0},  # of turns that are made to be far off-policy
        )
        local_run(folders[-1], config, change=eventful, broken=3)
    folders.append(tmp_path_factory.mktemp("mixture"))
    local_run(folders[-1], config_of(env="frozen_lake:0.5,fork_chain:0.5", eval={"samples": 2}), kind=Passing)
    folders.append(tmp_path_factory.mktemp("held up"))
    held = {"entropy_coef": 0.01, "kl_coef": 0.01}
    local_run(folders[-1], config_of(explore=held, optim={"lr_signal": 1.0}))
    folders.append(tmp_path_factory.mktemp("lagging"))
    stream = {"staleness": 1, "mode": "stream", "batching": "eager"}
    config = config_of(algo="grpo", rollout=stream, guard={"mismatch": 0})
    copies = Copies(config.checkpoint, folders[-1])
    copies._bucket = cast("Bucket", "one that nobody asks: no thread copies")
    local_run(folders[-1], config, change=eventful, copies=copies)
    folders.append(tmp_path_factory.mktemp("pretrained"))
    model = random_llama(tmp_path_factory.mktemp("llama"), context=512)
    config = config_of(agent={"system": True}, optim={"lr": 1e-6}, warmup={"lr": 1e-6})
    local_run(folders[-1], config.model_copy(update={"model": model, "engine_options": {}}))
    return folders


def records(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def written(runs: list[Path]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for record in (record for folder in runs for record in records(folder)):
        found[record.pop("kind")] |= record.keys() - {"step"}  # type: ignore[index]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_and_a_run_name_the_same_metrics(kind, written):
    defined = page()[kind]
    assert [
        name for name in sorted(written[kind]) if not any(pattern(d).fullmatch(name) for d in defined)
    ] == []
    assert [d for d in defined if not any(pattern(d).fullmatch(name) for name in written[kind])] == []


def test_every_reason_of_the_ledger_is_defined(written):
    defined = page()["reasons"]
    found = {
        name.split("/", 2)[2]
        for name in written["train"]
        if name.startswith(("tokens/masked/", "tokens/dropped/"))
    }
    assert {
        "zero_credit",
        "faulty_turn",
        "chunk_mask",
        "correction",
        "critic_warm-up",
        "lambda_rl_0",
        "failed/env_lost",
    } <= found
    assert [name for name in sorted(found) if not any(pattern(d).fullmatch(name) for d in defined)] == []
    source = "".join(path.read_text() for path in (ROOT / "trainer").rglob("*.py"))
    for reason in defined:
        literal = reason.removesuffix("/CODE").replace("_", "[ _]")
        assert re.search(f'"{literal}("|: )', source), f"nothing gives the reason {reason}"


def test_tensorboard_shows_what_the_file_says(runs):
    events = EventAccumulator(str(runs[0] / "events")).Reload()
    tags = {f"{record['kind']}/{name}" for record in records(runs[0]) for name in record}
    assert set(events.Tags()["scalars"]) == {tag for tag in tags if not tag.endswith(("/kind", "/step"))}


def test_the_ledger_adds_up_in_every_step_and_in_the_summary(runs):
    for folder in runs:
        totals: dict[str, float] = {}
        for record in records(folder):
            tokens = {name: value for name, value in record.items() if name.startswith("tokens/")}
            within = ("tokens/total", "tokens/experts", "tokens/reused")
            parts = sum(value for name, value in tokens.items() if name not in within)
            assert parts == tokens.get("tokens/total", 0)
            if record["kind"] == "train":
                for name, value in tokens.items():
                    totals[name.removeprefix("tokens/")] = totals.get(name.removeprefix("tokens/"), 0) + value
        assert json.loads((folder / "summary.json").read_text())["ledger"] == totals


def test_the_summary_is_defined():
    assert sorted(page()["summary.json"]) == sorted(each.name for each in fields(RunSummary))
