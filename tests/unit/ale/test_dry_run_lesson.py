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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "all 25 older ones. `ale replay train` computes any step again, after at most 9 others."),
        (
            ["-s", "checkpoint.history_gb=0.01"],
            "at least 2 of the 25 older ones. `ale replay train` computes any step again",
        ),
        (
            ["-s", "checkpoint.history_gb=0"],
            "computes steps after 250 again, and any with checkpoint.history_gb=0.01,",
        ),
        (["--model", "somebody/a-model"], "how large one is shows when the first is written"),
    ],
)
def test_what_can_be_computed_again_is_said(words, said) -> None:
    shown = CliRunner().invoke(app, ["train", "--env", "frozen_lake", *words, "--dry-run"]).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("# checkpoints")]
    assert said in line
