"""`ale eval`: how good is a trained model.

The measurement itself is `ale.api.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ale import api
from ale.terminal import stderr, stdout
from ale.training.model_play import model_settings
from ale.training.progress import bracketed, sampled
from trainer.metrics import Evaluation

__all__ = ["EvalCommand", "eval_command"]


@dataclass(frozen=True, slots=True)
class EvalCommand:
    """What the user typed."""

    model: str
    named: Mapping[str, object]
    overrides: Sequence[str]
    ray_address: str | None


def eval_command(command: EvalCommand) -> None:
    """Play the tasks and print success, raw and as a share of the optimum. Raise `TrainerError` or `RockError`."""
    resolved = model_settings(command.model, named=dict(command.named), overrides=list(command.overrides))
    for notice in resolved.notices:
        stderr().print(f"note: {notice}")
    config = resolved.config
    found = api.evaluate(config, ray_address=command.ray_address)
    failures = f", {found.failures} failed to run" if found.failures else ""
    stdout().print(
        f"{command.model} on {config.env} ({config.eval.split}): {_success(found)}, share {found.share:.4f}, "
        f"{found.episodes} episodes{failures}{_tries(found)}"
    )
    for env, own in found.envs.items():
        stdout().print(f"{env}: {_success(own)}{_tries(own)}")


def _success(found: Evaluation) -> str:
    interval = bracketed(found.metrics(), digits=4)
    return f"success {found.success:.4f}{interval} of an optimum of {found.optimum:.4f}"


def _tries(found: Evaluation) -> str:
    tries = ", ".join(sampled(found.metrics()))
    return tries and f"; sampled {tries}"
