"""What happens to a run whose files were changed while nobody trained: it is named, and what is whole goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_fleet import Listening, LocalFleet, config_of

from ale.config import resolve
from ale.training import runs
from ale.training.model_play import model_settings
from trainer import loop
from trainer.config import TrainConfig
from trainer.errors import CheckpointError, ConfigError
from trainer.files.digests import digest_of
from trainer.models.chosen import check_files
from trainer.run_state import RunState, SavedStates


class Playing(LocalFleet):
    """A fleet in this process, with what the loop asks of one."""

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path) -> None:
        super().__init__(config)

    def __enter__(self) -> Playing:
        return self

    def __exit__(self, *error: object) -> None: ...


class Stopping(Listening):
    """Somebody who stops a run after a step, and keeps what it says."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.stop_requested = False
        self.after = after
        self.said: list[str] = []

    def on_step(self, step: int, total: int, metrics: object) -> None:
        self.stop_requested = step == self.after

    def on_log(self, message: str) -> None:
        self.said.append(message)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-7] ^= 0x40
    path.write_bytes(content)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(loop, "Fleet", Playing)
    return config_of(steps=3, checkpoint={"every": 1, "keep": 2})


def begun(folder: Path, config: TrainConfig, after: int) -> None:
    runs.open_new(folder, config)
    assert loop.train(config, folder, observer=Stopping(after)) is None


def test_a_flipped_bit_costs_a_step_and_no_number(tmp_path: Path, config: TrainConfig) -> None:
    begun(tmp_path / "run", config, 2)
    checkpoints = tmp_path / "run" / "checkpoints"
    newest = checkpoints / "step-000002" / "train.safetensors"
    flip(newest)
    (checkpoints / ".step-000003.tmp").mkdir()
    watcher = Stopping()
    found = loop.train(config, tmp_path / "run", observer=watcher, resume=True)
    told = [said for said in watcher.said if "goes on from step-000001" in said]
    assert len(told) == 1
    assert f"{newest}: expected the digest" in told[0]
    assert {path.name for path in checkpoints.iterdir()} == {
        *(f"step-00000{step}" for step in range(4)),
        "step-000002.damaged",
    }
    whole = loop.train(config, tmp_path / "whole", observer=Listening())
    assert found is not None
    assert whole is not None
    assert found.model_digest == whole.model_digest


def test_where_experts_were_changed_nothing_is_resumed_and_nothing_changes(
    tmp_path: Path, config: TrainConfig
) -> None:
    begun(tmp_path / "run", config, 2)
    flip(tmp_path / "run" / "trajectories" / "expert.rollouts")
    before = digest_of(tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"expert\.rollouts: expected the digest .* Nothing was changed"
    ):
        loop.train(config, tmp_path / "run", observer=Listening(), resume=True)
    assert digest_of(tmp_path / "run") == before


def test_an_edited_setting_is_named_with_both_values(tmp_path: Path) -> None:
    config = resolve(options={"seed": 3}).config
    runs.open_new(tmp_path / "run", config)
    path = tmp_path / "run" / "config.toml"
    SavedStates(tmp_path / "run").begin(
        1, RunState(step=1), engine=lambda folder: lambda: None, options=config.checkpoint
    )()
    text = path.read_text()
    path.write_text(f"# a word of mine\n{text}")
    assert runs.recorded_config(tmp_path / "run") == config
    path.write_text(text.replace("seed = 3", "seed = 4"))
    for read in (
        lambda: runs.recorded_config(tmp_path / "run"),
        lambda: runs.continue_run(tmp_path / "run", config),
        lambda: model_settings(str(tmp_path / "run"), named={}, overrides=[]),
    ):
        with pytest.raises(
            ConfigError, match=r"config\.toml was changed .*: seed has 4, the run has 3\. Put that back"
        ):
            read()


def test_a_changed_model_is_not_loaded(tmp_path: Path, config: TrainConfig) -> None:
    loop.train(config, tmp_path, observer=Listening())
    model = tmp_path / "model"
    (model / "README.md").write_text("mine")
    check_files(str(model))
    flip(model / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: expected the digest"):
        check_files(str(model))
