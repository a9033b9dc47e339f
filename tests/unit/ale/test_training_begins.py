"""What `ale.api` refuses before anything heavy starts, and what is left of a run that could not begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from ale import api
from ale.config import resolve
from trainer.errors import ConfigError

# Of this family no generated task as hard as these is held out.
NARROW = ["env_args.families=wrong_operator", "env_args.min_difficulty=0.62", "env_args.max_difficulty=0.64"]


def test_a_split_without_tasks_is_refused_by_the_run_before_it_has_a_folder(tmp_path: Path) -> None:
    config = resolve(options={"env": "swe"}, overrides=NARROW).config
    with pytest.raises(ConfigError, match=r"split 'held_out' has no task .*got train 2, held_out 0"):
        api.train(config, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
