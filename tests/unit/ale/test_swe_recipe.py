"""What records of runs on `swe` showed of its recipe, and was mended."""

from __future__ import annotations

from ale import config as configuration
from sandboxes.swe.catalog import TEST_COMMAND
from trainer.config import TrainConfig


def resolved(*overrides: str) -> TrainConfig:
    options = {"env": "swe", "algo": "ipa"}
    return configuration.resolve(file=None, options=options, overrides=list(overrides)).config


def test_a_busy_machine_turns_no_passing_tests_into_failing_ones() -> None:
    """Processor time bounds a test run. A tenth of the experts saw passing tests time out after 60 s, and submitted."""
    assert "ulimit -t 2;" in TEST_COMMAND
    assert float(str(resolved().env_args["command_timeout_s"])) >= 300


def test_what_is_never_trained_takes_less_of_an_evaluation_than_what_is() -> None:
    evaluation = resolved().eval
    assert evaluation.apart == ("held_out_family",)
    assert 0 < evaluation.apart_tasks <= evaluation.tasks // 4
