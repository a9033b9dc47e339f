"""The weights of what keeps a policy trying, step by step: fixed, moved towards an entropy, or falling to 0.

Owned by the learner, which saves it with its checkpoints, so that a resumed run and `ale replay train` go on with the same
coefficient and the same policy of the warm-up. It decides by the step's rollouts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from agent_runtime.types import Trajectory
from rock_env.errors import InvalidArgument
from rock_env.foreign.files import read_regular
from rock_env.store.whole_file import write_whole
from trainer.algo.terms.explore import Explored
from trainer.config import TrainConfig
from trainer.data.batch import Credit, TrainBatch
from trainer.errors import CheckpointError, ConfigError
from trainer.learners.torch_train import system_errors
from trainer.protocols.engines import LossFn, TellsEntropy, TrainEngine, Weights
from trainer.teaching import signal_metrics

__all__ = ["MOST_COEF", "Explorer", "Held"]

MOST_COEF = 1.0
"""A coefficient that adapts goes no higher: a nat of entropy is then worth as much as a credit of 1."""
_GAIN = 0.01
"""What a step adds to it where no entropy is left, and takes off it at twice the target; in between in proportion."""
_COEF_FILE, _WARM_FILE = "explore.json", "warmup.safetensors"


class Held(NamedTuple):
    """What holds the policy up in one step."""

    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    over: Literal["tokens", "turns"] = "tokens"

    @property
    def any(self) -> bool:
        """Return whether there is a term, which trains tokens without credit, too."""
        return bool(self.entropy_coef or self.kl_coef)

    def credits(self, credits: Sequence[Credit]) -> list[Credit]:
        """Return the credits with every token trained, where there is a term."""
        return [replace(credit, every_token=True) for credit in credits] if self.any else list(credits)

    def loss(self, loss: LossFn) -> LossFn:
        """Return an algorithm's loss with the terms."""
        return Explored(loss, self.entropy_coef, self.kl_coef, self.over) if self.any else loss

    def metrics(self) -> dict[str, float]:
        """Return the weights under the names of docs/metrics.md; nothing where there is none."""
        named = {"explore/entropy_coef": self.entropy_coef, "explore/kl_coef": self.kl_coef}
        return {name: value for name, value in named.items() if value}


class Explorer:
    """A run's `explore` settings, and what of them moves."""

    def __init__(self, config: TrainConfig, engine: TrainEngine, *, learns: bool) -> None:
        """Raise `ConfigError` where the engine's distributions cannot be seen, or the algorithm has no use for them."""
        self._options, self._steps = config.explore, config.steps
        self._coef = self._options.entropy_coef
        self._warm: Weights | None = None
        wanted = [name for name, on in _wanted(config).items() if on]
        if wanted and not learns:
            raise ConfigError(
                f"{' and '.join(wanted)} would do nothing with algo {config.algo!r}, which learns from no rollouts: leave "
                "it out, or choose another algorithm"
            )
        shaped = [name for name in wanted if name != "explore.kl_coef"]
        if shaped and not (isinstance(engine, TellsEntropy) and engine.tells_entropy):
            raise ConfigError(
                f"{' and '.join(shaped)} needs a train engine that tells a token's whole distribution: got "
                f"{config.engine!r}, expected tiny, or hf in one process (engine_options.ranks=1). Leave it out; "
                "explore.kl_coef, filter.dynamic and optim.lr_signal work with any engine"
            )

    def at(self, step: int, trajectories: Sequence[Trajectory]) -> Held:
        """Return the weights of a step, given its rollouts, by whose entropy the coefficient moves first."""
        options = self._options
        if options.target_entropy and (found := signal_metrics(trajectories)):
            missing = 1 - found["entropy"] / options.target_entropy
            self._coef = min(max(self._coef + _GAIN * missing, 0.0), MOST_COEF)
        left = max(0.0, 1 - max(step - 1, 0) / (options.kl_until * max(self._steps, 1)))
        if not left:
            self._warm = None
        return Held(self._coef, options.kl_coef * left, options.entropy_over)

    def batch(
        self, batch: TrainBatch, held: Held, ask: Callable[[TrainBatch, Weights], torch.Tensor]
    ) -> TrainBatch:
        """Return the batch with what the terms read. Raise `CheckpointError` where the warm-up's weights are gone."""
        if held.kl_coef:
            if self._warm is None:
                raise CheckpointError(
                    f"explore.kl_coef compares with the policy of the warm-up, and its weights are gone: expected "
                    f"{_WARM_FILE} in the checkpoint that the run went on from. Put it back, or start another run."
                )
            batch = replace(batch, warmup_logprobs_BT=ask(batch, self._warm))
        return replace(batch, wants_entropy=bool(held.entropy_coef))

    def published(self, version: int, weights: Weights) -> None:
        """Take note of a version; the first is the policy of the warm-up."""
        if version == 0 and self._options.kl_coef:
            self._warm = {name: np.array(value, order="C") for name, value in weights.items()}

    def save(self, folder: Path) -> None:
        """Write what moves into an existing folder; nothing where nothing does. Raise `OSError`."""
        if self._options.target_entropy:
            (folder / _COEF_FILE).write_bytes(msgspec.json.encode(self._coef))
        if self._warm is not None:
            warm = self._warm
            with system_errors(folder / _WARM_FILE):
                write_whole(folder / _WARM_FILE, lambda path: save_file(warm, path), durable=False)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raise `InvalidArgument` for a damaged file."""
        try:
            if self._options.target_entropy:
                self._coef = msgspec.json.decode(read_regular(folder / _COEF_FILE), type=float)
            path = folder / _WARM_FILE
            self._warm = load_file(path) if self._options.kl_coef and path.exists() else None
        except (OSError, ValueError, RecursionError, msgspec.DecodeError, SafetensorError) as error:
            raise InvalidArgument(
                f"cannot read what the `explore` settings need from {folder}: {error}. Remove the folder {folder.name} to "
                "resume from the checkpoint before it."
            ) from error


def _wanted(config: TrainConfig) -> dict[str, bool]:
    return {
        "explore.entropy_coef": bool(config.explore.entropy_coef),
        "explore.target_entropy": bool(config.explore.target_entropy),
        "explore.kl_coef": bool(config.explore.kl_coef),
        "sampling.temperature": config.sampling.temperature != 1,
    }
