"""What an earlier version wrote is read, listed and gone on with by this one."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_fleet import Listening, LocalFleet

from agent_runtime.graph import validate
from agent_runtime.store import encode, index, read_segment
from agent_runtime.types import Hosting, StopReason, TurnFault, TurnLabel
from ale.replay.listing import Wanted, list_command
from ale.replay.records import iterate
from ale.training import runs
from ale.training.lineage import lineage_command
from rock_env.lifecycle import SandboxState
from rock_env.snapshots import SnapshotState
from rock_env.store.base import Query, SnapshotQuery
from rock_env.store.open import open_store
from trainer.metrics import read_summary
from trainer.run import Run

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / "run", tmp_path / "run"))


def test_a_kept_run_is_listed_and_every_record_of_it_is_valid(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [trajectory for _, trajectory in iterate(str(folder))]
    for trajectory in records:
        validate(trajectory)
    assert len(records) == 13
    assert {t.env for t in records} == {"frozen_lake@1"}
    assert [t.id for t in records if t.is_expert] == ["expert-00000", "expert-00001", "expert-00002"]
    assert sum(segment.trajectories for segment in index(folder)) == 13
    list_command(str(folder), wanted=Wanted(), limit=100)
    lineage_command(str(folder))
    told = capsys.readouterr().out
    assert "13 of 13 trajectories shown\ntraining: 8 rollouts, 0 passed, 8 unsolved, 0 errored\n" in told
    assert "frozen_lake@1" in told


def test_a_kept_run_goes_on_from_its_checkpoint_to_its_end(folder: Path) -> None:
    before = (folder / "metrics.jsonl").read_text()
    config = runs.recorded_config(folder)
    runs.continue_run(folder, config)
    observer = Listening()
    with Run(config, folder, LocalFleet(config), observer, resume=True) as run:  # type: ignore[arg-type]
        assert not run.is_new
        assert not run.is_warming_up
        assert not run.is_unmeasured
        assert list(run.remaining_steps()) == [3]
        batch = run.batch(3)
        run.learn(batch)
        run.publish(3)
        run.report(batch)
        run.finish()
    after = (folder / "metrics.jsonl").read_text()
    assert after.startswith(before)
    assert [json.loads(line)["step"] for line in after.splitlines()[len(before.splitlines()) :]] == [3, 3]
    finished = read_summary(folder)
    assert finished is not None
    assert finished.steps == 3


def test_every_field_of_a_kept_trajectory_of_schema_2_is_read() -> None:
    old = list(read_segment(HERE / "every_field.traj"))
    *same, fifth = read_segment(HERE / "every_field.rollouts")
    hosting = Hosting("box-1", "sha256:ab", made_s=0.5, reset_s=0.25, graded_s=0.125)
    for number, trajectory in enumerate([*same, fifth]):
        validate(trajectory)
        assert (trajectory.grader_output, trajectory.hosting) == ("1 of 2 tests passed", hosting)
        earlier = replace(trajectory, grader_output="", hosting=None, schema_version=1)
        assert encode(replace(earlier, id=old[number % 2].id)) == encode(old[number % 2])
    assert [trajectory.id for trajectory in same] == ["r0", "r1", "r2", "r3"]


def test_the_versions_of_a_kept_turn_are_read() -> None:
    (record,) = read_segment(HERE / "spans.rollouts")
    validate(record)
    assert record.schema_version == 3
    assert [turn.spans for turn in record.turns] == [((6, 9), (7, 15))] * 2
    assert [turn.oldest_version for turn in record.turns] == [6, 6]


def test_every_field_of_a_kept_trajectory_is_read() -> None:
    graded, failed = read_segment(HERE / "every_field.traj")
    for trajectory in (graded, failed):
        validate(trajectory)
        assert (trajectory.env, trajectory.params_json, trajectory.task_id) == (
            "toy@1",
            '{"size":4}',
            "train/5",
        )
        assert (trajectory.group_id, trajectory.index, trajectory.seed) == ("g1", 2, 11)
        assert (trajectory.duration_s, trajectory.policy_step, trajectory.illegal_actions) == (2.5, 4, 1)
        start = trajectory.start
        assert (start.env_seed, start.resume_seed, start.source_id, start.hint) == (
            7,
            9,
            "expert-1",
            "Hint: go",
        )
        assert [(t.action, t.observation, t.memory) for t in start.prefix] == [
            ("look", "o1", ("memory read",))
        ]
        assert trajectory.actions == ("go", "memory write x", "sum up")
        assert trajectory.observations == ("o2", "noted", "")
        assert trajectory.turn_rewards == (0.5, 0.0, 0.0)
        assert trajectory.turn_faults == (TurnFault.TOOL_BROKE, TurnFault.ILLEGAL, TurnFault.NONE)
        assert trajectory.turn_labels == (TurnLabel.MAIN, TurnLabel.MAIN, TurnLabel.SUMMARY)
        assert trajectory.internal_turns == (1, 2)
        first, second, third = trajectory.turns
        assert (first.parent, second.parent, third.parent) == (None, 0, None)
        assert [turn.policy_version for turn in trajectory.turns] == [3, 3, 4]
        assert [turn.finish_reason for turn in trajectory.turns] == ["stop", "length", "stop"]
        assert (first.started_s, first.sampled_s, first.stepped_s) == (0.1, 0.2, 0.3)
        np.testing.assert_array_equal(first.context_ids, [1, 2, 3])
        np.testing.assert_array_equal(third.completion_ids, [9, 10])
        np.testing.assert_array_equal(third.logprobs, [-0.125, 0.0])
    assert (graded.reward, graded.passed, graded.stop_reason) == (0.75, True, StopReason.TERMINATED)
    assert graded.has_reward
    source = graded.reward_source
    assert source is not None
    assert (source.worker, source.version, source.digest, source.latency_s) == (
        "judge",
        "1/model",
        "abc",
        1.5,
    )
    assert (source.raw, source.prompt_tokens, source.completion_tokens) == ('{"score": 0.75}', 100, 20)
    assert (graded.env_reward, graded.env_turn_rewards) == (0.0, (0.0, 0.0, 0.0))
    assert math.isnan(failed.reward)
    assert not failed.has_reward
    assert failed.why_no_reward == "failed: env_lost"
    assert failed.failure is not None
    assert (failed.failure.message, failed.failure.turn, failed.lost_tokens) == ("the worker died", 3, 5)


async def test_a_kept_store_is_opened_and_written_on(tmp_path: Path) -> None:
    path = shutil.copy(HERE / "rock.sqlite", tmp_path / "rock.sqlite")
    async with await open_store(str(path)) as store:
        running, deleted = await store.find(Query())
        assert (running.id, running.state, running.reason) == ("sb-1", SandboxState.RUNNING, "its box is up")
        assert (running.tenant, running.environment, running.labels) == ("team", "swe@1", {"run": "7"})
        assert (running.created_at, running.expires_at, running.lease_expires_at) == (1000.5, 8200.5, 1060.5)
        assert (running.idle_timeout_s, running.idempotency_key, running.durable) == (30.0, "create-1", True)
        assert (running.box_id, running.snapshot_id, running.revision) == ("sb-1", "sn-2", 3)
        assert [(token.secret_sha256, token.port) for token in running.tokens] == [(bytes(range(32)), 8080)]
        spec = running.spec
        assert (spec.image, spec.workdir, spec.env) == ("python:3.11-slim", "/repo", (("LANG", "C"),))
        assert (spec.network.allow, spec.preload) == (("pypi.org:443",), ("json",))
        assert [change.state for change in deleted.history] == ["STARTING", "RUNNING", "DELETING", "DELETED"]
        root, child = await store.find_snapshots(SnapshotQuery())
        assert (root.id, root.labels, root.bytes, root.idempotency_key) == (
            "sn-1",
            {"step": "0"},
            4096,
            "snap-1",
        )
        assert (child.id, child.parent, child.state) == ("sn-2", "sn-1", SnapshotState.READY)
        assert child.spec == spec
        assert (await store.uses(["sn-1", "sn-2"]))["sn-2"].boxes == 1
        assert (await store.save(running)).revision == 8
