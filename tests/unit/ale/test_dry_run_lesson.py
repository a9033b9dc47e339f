"""`ale train --dry-run` ends with what the algorithm learns from, under the settings that it shows above."""

import tomllib

import pytest
from typer.testing import CliRunner

from ale.cli import app


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--algo", "ipa", "--model", "somebody/a-model"],
            "reward less the mean of its group; failures count with weight 0.3",
        ),
        (["--algo", "ipa"], "learns from successes only, each by its reward less the mean of its group"),
        (
            ["--algo", "ipa", "-s", "algo_options.baseline=none"],
            "learns from successes only (rejection sampling)",
        ),
        (["--algo", "grpo"], "failures count with weight 1"),
        (["--algo", "bc"], "learns from experts only (imitation)"),
    ],
)
def test_the_sentence_is_of_the_settings_shown(words, said) -> None:
    shown = CliRunner().invoke(app, ["train", "--env", "frozen_lake", *words, "--dry-run"]).stdout
    begins = f"# {tomllib.loads(shown)['algo']} learns from "
    (lesson,) = [line for line in shown.splitlines() if line.startswith(begins)]
    assert said in lesson
