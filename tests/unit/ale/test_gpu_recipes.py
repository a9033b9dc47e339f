"""Recipes for GPUs: each resolves, fits its bundles by estimate, and says that it was not measured."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from ale.training.training import TrainCommand, train_command
from trainer.errors import ConfigError

GPU = Path(str(resources.files("ale") / "recipes" / "gpu"))


def shown(capsys: pytest.CaptureFixture[str], file: Path, *overrides: str) -> str:
    command = TrainCommand(
        named={"env": "math"},
        overrides=overrides,
        file=file,
        run=None,
        resume=False,
        ray_address=None,
        quiet=True,
        dry_run=True,
    )
    assert train_command(command) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("file", sorted(GPU.glob("*.toml")), ids=lambda file: file.stem)
def test_a_recipe_fits_its_bundles_and_prints_its_map(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Not measured" in file.read_text(encoding="utf-8")
    out = shown(capsys, file)
    memory = out.partition("# memory, worked out")[2]
    table = memory.partition("# placement, ")[2].partition("\n#\n")[0].splitlines()
    assert [line.split()[1] for line in memory.splitlines()[2:4]] == ["learner", "sampler"]
    assert "all on one" not in memory
    assert table[2].startswith("# 0 ")
    assert "learner (" in table[2]
    assert all(line.count(" GB ") == 2 for line in table[2:])


def test_a_recipe_on_a_smaller_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    smaller = "placement.pool=[{cpus=4,gpus=1,memory_gb=40}]"
    with pytest.raises(ConfigError, match=r"bundle 0 of placement\.pool has 40 GB on each GPU"):
        shown(capsys, GPU / "qwen3-4b.toml", smaller)


def test_every_size_is_there() -> None:
    assert {file.stem for file in GPU.glob("*.toml")} == {
        "qwen3-0.6b-lora",
        "qwen3-4b",
        "qwen3-8b",
        "qwen3-30b-a3b",
    }
