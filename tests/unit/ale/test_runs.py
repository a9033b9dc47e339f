"""Run folders: opened once, continued with the same settings only."""

from pathlib import Path

import pytest

from ale.config import resolve
from ale.training import runs
from trainer.errors import ConfigError, RunFolderError


def test_a_folder_is_opened_once(tmp_path: Path) -> None:
    config = resolve(options={"seed": 3}).config
    runs.open_new(tmp_path / "run", config)
    assert runs.recorded_config(tmp_path / "run") == config
    with pytest.raises(RunFolderError, match="--resume"):
        runs.open_new(tmp_path / "run", config)


def test_a_run_continues_with_its_own_settings_only(tmp_path: Path) -> None:
    runs.open_new(tmp_path / "run", resolve(options={"seed": 3}).config)
    runs.continue_run(tmp_path / "run", resolve(options={"seed": 3}).config)
    with pytest.raises(ConfigError, match=r"seed = 3, got 4"):
        runs.continue_run(tmp_path / "run", resolve(options={"seed": 4}).config)
    with pytest.raises(RunFolderError, match="no run in"):
        runs.continue_run(tmp_path / "other", resolve().config)


def test_where_a_run_is_computed_may_change_as_it_continues(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.open_new(folder, resolve().config)
    elsewhere = [
        "rollout.workers=3",
        "engine_options.ranks=2",
        "placement.pool=[{cpus=4},{cpus=2}]",
        "checkpoint.every=7",
    ]
    config = resolve(options={"model": "tests/model"}, overrides=elsewhere).config
    with pytest.raises(ConfigError, match=r"has agent.system = False, got True"):
        runs.continue_run(folder, config)
    assert runs.recorded_config(folder) == resolve().config
    config = resolve(overrides=[each for each in elsewhere if "ranks" not in each]).config
    assert runs.continue_run(folder, config) == config
    assert runs.recorded_config(folder) == resolve().config
    said = runs.keep_config(folder, config)
    assert "the run goes on with rollout.workers = 3, it had 2" in said
    assert runs.recorded_config(folder) == config
    assert runs.keep_config(folder, config) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"cannot write the run folder .*file/run: Not a directory"):
        runs.open_new(tmp_path / "file" / "run", resolve().config)


def test_names_live_in_runs_and_paths_where_they_say(tmp_path: Path) -> None:
    assert runs.locate("lake") == Path("runs/lake")
    assert runs.locate(str(tmp_path)) == tmp_path
    assert runs.default_name(resolve(options={"seed": 3}).config) == "frozen_lake-ipa-seed3"


def test_a_run_is_found_by_name_in_runs_and_then_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs.locate("s10") == runs.HOME / "s10"
    (tmp_path / "s10").mkdir()
    assert runs.locate("s10") == runs.HOME / "s10"  # a folder that is no run
    (tmp_path / "s10" / runs.CONFIG).write_text("")
    assert runs.locate("s10") == Path("s10")
    (runs.HOME / "s10").mkdir(parents=True)
    assert runs.locate("s10") == runs.HOME / "s10"
