"""A model's name means the folder that `ale model get` left, and nothing else happens by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ale.config import resolve
from trainer.errors import ConfigError
from trainer.models.chosen import check_model
from trainer.models.named import SOURCE, named_models, with_folder


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALE_MODELS", str(tmp_path / "shelf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "shelf"


def fetched(shelf: Path) -> Path:
    folder = named_models()["smollm2"].folder
    folder.mkdir(parents=True)
    (folder / SOURCE).write_text("{}")
    return folder


def test_a_name_stands_for_its_folder_in_every_layer(shelf: Path, tmp_path: Path) -> None:
    folder, file = fetched(shelf), tmp_path / "own.toml"
    named = {"env": "frozen_lake", "model": "smollm2"}
    assert resolve(options=named).config.model == str(folder)
    assert resolve(options={"env": "frozen_lake"}, overrides=["model=smollm2"]).config.model == str(folder)
    file.write_text(f'env = "frozen_lake"\nmodel = "{folder}"\n[engine_options]\nlora_rank = 4\n')
    resolved = resolve(file=file, options={"model": "smollm2"})
    assert resolved.config.engine_options["lora_rank"] == 4, "the file's options are of the same model"
    check_model("smollm2")


def test_a_name_that_was_not_fetched_says_how_to_get_it() -> None:
    for ask in (
        lambda: resolve(options={"env": "frozen_lake", "model": "smollm2"}),
        lambda: resolve(options={"env": "frozen_lake", "model": "smollm2"}, overrides=["learner=hf"]),
        lambda: check_model("smollm2"),
    ):
        with pytest.raises(
            ConfigError, match=r"'smollm2' was not fetched: got no .*Run: ale model get smollm2"
        ):
            ask()
    assert resolve(options={"env": "frozen_lake", "model": "tiny"}).config.model == "tiny"


def test_a_folder_of_that_name_stands_for_it_where_none_was_fetched(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "smollm2").mkdir()
    assert with_folder({"model": "smollm2"}) == {"model": "smollm2"}
    assert resolve(options={"env": "frozen_lake", "model": "smollm2"}).config.model == "smollm2"
    folder = fetched(shelf)
    assert with_folder({"model": "smollm2"}) == {"model": str(folder)}
    assert with_folder({"model": "./smollm2"}) == {"model": "./smollm2"}
