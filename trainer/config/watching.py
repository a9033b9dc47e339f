"""What is measured of a run, what halts it, and when it is saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainer.config.section import Section
from trainer.files.bucket import check_place

__all__ = ["CheckpointOptions", "EvalOptions", "GuardOptions"]


class EvalOptions(Section):
    """Success on held-out tasks, always from the true start."""

    split: str = "held_out"
    apart: tuple[str, ...] = ()
    """Splits measured beside it, after the warm-up and at the end; reported apart."""
    apart_tasks: NonNegativeInt = 0
    """Tasks of each of those splits; 0: as many as `tasks`."""
    tasks: PositiveInt = 200
    """Tasks of the evaluations after the warm-up and at the end."""
    every: NonNegativeInt = 10
    """Steps between evaluations in between; 0 evaluates only after warm-up and at the end."""
    progress_tasks: PositiveInt = 64
    """Tasks of those in between: the first so many of `tasks`."""
    temperature: NonNegativeFloat = 0.0
    """0 is greedy."""
    samples: int = Field(default=0, ge=0, le=1024)
    """Episodes of each of `tasks` that are sampled beside that, after the warm-up and at the end, for pass@1, pass@2, pass@4
    and so on; 0: none."""
    samples_temperature: PositiveFloat = 1.0
    """Of those; 1 is what training samples at."""


class GuardOptions(Section):
    """What halts a run that damages the model it began with, or samples with another one (docs/algorithms.md)."""

    text_rise: NonNegativeFloat = 1.0
    """Most that a plain English text may cost more than at the run's beginning, in nats per token, after every pass of the
    warm-up and every step; of Hugging Face models. 0 does not look."""
    legal_fall: float = Field(default=0.2, ge=0, le=1)
    """Most by which the share of legal actions may fall, over a warm-up and from the first evaluation on, beyond what is
    chance. 0 does not look."""
    tasks: PositiveInt = 16
    """Tasks of `eval.split` played before and after the warm-up for that, of a model that brings its weights."""
    turns: PositiveInt = 4
    """First turns of them that are played."""
    late_s: PositiveFloat = 300.0
    """Longest that something may take, or five times the longest of its kind before where that is more, until the run says
    who waits for whom, in seconds; the first of a kind may take six times as long. It ends nothing."""
    mismatch: NonNegativeFloat | None = None
    """Most that the log-probabilities of learner and sampler may differ by in the first batch, with equal weights: of any
    token in float32 (unset: 0.001), on average in bfloat16 (unset: 0.05). 0 does not look."""


class CheckpointOptions(Section):
    """When the state is saved. Ctrl-C saves as well."""

    every: PositiveInt = 10
    """Steps between checkpoints."""
    keep: PositiveInt = 2
    """Newest checkpoints kept."""
    history_gb: NonNegativeFloat = 0.25
    """Most GB (10^9 bytes) of older ones kept beside those, for `ale replay train` and `tokens` to begin with: that of the
    warm-up's end, and as many others as fit, evenly over the steps. 0: none."""

    copy_to: Annotated[str, AfterValidator(check_place)] = ""
    """Where they are copied, beside training, with what a resume elsewhere needs: s3://BUCKET/PREFIX. Empty: nowhere."""

    @property
    def history_bytes(self) -> float:
        """Return the same in bytes."""
        return self.history_gb * 1e9
