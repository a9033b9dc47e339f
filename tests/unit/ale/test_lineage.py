"""A run remembers what its model was made of, a chain is shown oldest first, and a changed file is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent_runtime.store import segment_path, write_segment
from ale.config import Layer, resolve
from ale.errors import Diverged, RecordError
from ale.training import runs
from ale.training.lineage import chain, lineage_command
from ale.training.training import sft_overrides
from trainer import lineage
from trainer.config import TrainConfig
from trainer.errors import ConfigError, RunFolderError
from trainer.lineage import ExpertRecord, Source


def ended_run(folder: Path, model: str = "tiny", *, steps: int = 3, weights: bytes = b"w") -> Path:
    """Make the folder of a run as it looks when it has ended."""
    config = resolve(options={"model": model, "seed": 4}).config
    runs.open_new(folder, config)
    story = lineage.begin(config, "frozen_lake@1")
    story.sources = [Source("oracle of frozen_lake@1", "", 2, {})]
    story.experts = [
        ExpertRecord("a", "train/0", "oracle of frozen_lake@1", "a", "d0", 5, 2, held_out=False),
        ExpertRecord("b", "train/1", "oracle of frozen_lake@1", "b", "d1", 4, 0, held_out=True),
    ]
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(weights)
    story.steps, story.final_digest = steps, lineage.digest_of(folder / "model")
    lineage.write(folder, story)
    (folder / "summary.json").write_text(json.dumps({"algo": "bc", "steps": steps, "env": "frozen_lake"}))
    return folder


def test_a_run_knows_its_parent_by_the_model_it_begins_with(tmp_path: Path) -> None:
    parent = ended_run(tmp_path / "sft")
    begun = lineage.begin(TrainConfig(model=str(parent / "model")), "frozen_lake@1")
    assert begun.parent is not None
    assert (begun.parent.run, begun.parent.algo, begun.parent.steps) == (str(parent), "bc", 3)
    assert begun.model_digest == lineage.digest_of(parent / "model")
    assert begun.parent.lineage_digest == lineage.digest_of(parent / "lineage.json")
    lineage.write(tmp_path, begun)
    assert lineage.read(tmp_path) == begun
    assert lineage.begin(TrainConfig(model="tiny"), "frozen_lake@1").parent is None
    (tmp_path / "elsewhere" / "model").mkdir(parents=True)
    foreign = lineage.begin(TrainConfig(model=str(tmp_path / "elsewhere" / "model")), "frozen_lake@1")
    assert (foreign.parent, bool(foreign.model_digest)) == (None, True)


def test_a_digest_is_of_contents_and_names(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"1")
    first = lineage.digest_of(tmp_path / "a")
    assert first == lineage.digest_of(tmp_path / "b")
    (tmp_path / "b" / "x").rename(tmp_path / "b" / "y")
    assert lineage.digest_of(tmp_path / "b") != first
    (tmp_path / "a" / "x").write_bytes(b"2")
    assert lineage.digest_of(tmp_path / "a") != first


def test_the_chain_is_shown_oldest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent = ended_run(tmp_path / "one")
    child = ended_run(tmp_path / "two", str(parent / "model"), weights=b"better")
    assert [place for place, _, _ in chain(child)] == [child, parent]
    lineage_command(str(child))
    shown = "".join(capsys.readouterr().out.split())
    assert shown.index(f"{tmp_path}/one") < shown.index(f"{tmp_path}/two")
    assert "2(1heldout,2turnsmasked)" in shown


def test_a_file_changed_since_is_noticed(tmp_path: Path) -> None:
    parent = ended_run(tmp_path / "one")
    child = ended_run(tmp_path / "two", str(parent / "model"))
    (parent / "model" / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(Diverged, match=r"one: its model is not the one it ended with"):
        lineage_command(str(child))
    (parent / "model" / "model.safetensors").write_bytes(b"w")
    lineage_command(str(child))
    story = lineage.read(parent)
    assert story is not None
    story.experts = []
    lineage.write(parent, story)
    with pytest.raises(Diverged, match=r"one: its lineage.json was changed"):
        lineage_command(str(child))


def test_a_run_trained_again_is_another_parent(tmp_path: Path) -> None:
    parent = ended_run(tmp_path / "one")
    child = ended_run(tmp_path / "two", str(parent / "model"))
    story = lineage.read(parent)
    assert story is not None
    (parent / "model" / "model.safetensors").write_bytes(b"again")
    story.final_digest = lineage.digest_of(parent / "model")
    lineage.write(parent, story)
    with pytest.raises(Diverged, match=r"the run after it began with another model"):
        lineage_command(str(child))


def test_no_run_and_a_damaged_lineage_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no lineage in"):
        lineage_command(str(tmp_path))
    (tmp_path / "lineage.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"cannot read .*lineage.json"):
        lineage_command(str(tmp_path))


def test_a_run_hands_down_what_the_model_saw_and_its_experts(tmp_path: Path) -> None:
    parent = ended_run(tmp_path / "sft")
    expert = segment_path(parent, "expert")
    write_segment(expert, [])
    (parent / "model" / "ale_tiny.json").write_text("{}")  # by it the folder is known as a tiny model's
    before = Layer("the run sft", runs.inherited(parent))
    made = resolve(before=before, overrides=["env_args.slippery=true"]).config
    assert (made.algo, made.seed, made.model) == ("ipa", 4, str(parent / "model"))
    assert made.engine == "tiny"
    assert made.warmup.data == (str(expert),)
    assert made.warmup.epochs == 0
    assert made.agent == resolve().config.agent
    assert made.env_args["slippery"] is True
    expert.unlink()
    assert runs.inherited(parent)["warmup"]["data"] == []
    shutil.rmtree(parent / "model")
    with pytest.raises(RunFolderError, match="no trained model yet"):
        runs.inherited(parent)


def test_imitation_makes_the_warm_up_of_the_recipe_the_run(tmp_path: Path) -> None:
    recipe = resolve().config.warmup
    made = resolve(options={"algo": "bc"}, imitation=True).config
    assert (made.steps, made.optim.lr, made.warmup.epochs) == (recipe.epochs, recipe.lr, 0)
    assert (made.warmup.trajectories, made.warmup.held_out) == (recipe.trajectories, 0.1)
    assert (made.eval.every, made.checkpoint.every) == (0, 1)
    chosen = sft_overrides(experts=None, data=[str(tmp_path), "lake"], held_out=0.5)
    other = resolve(
        options={"algo": "bc", "steps": 2}, overrides=[*chosen, "optim.lr=0.5"], imitation=True
    ).config
    assert (other.steps, other.optim.lr, other.warmup.held_out) == (2, 0.5, 0.5)
    assert other.warmup.data == (str(tmp_path), "runs/lake")
    with pytest.raises(ConfigError, match="choose one"):
        sft_overrides(experts=3, data=["lake"], held_out=None)
