"""How long everything in a simulated run takes, in seconds: what `fleet.toml` says, or what was measured in a run."""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    Tag,
    model_validator,
)

from trainer.config.section import Section

__all__ = ["FleetTimes", "Recorded", "Sampler", "Times"]

_P99 = NormalDist().inv_cdf(0.99)
Share = Annotated[float, Field(ge=0, le=1)]
Measured = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Seconds; more than a run can have taken is a damaged record."""


class Uniform(Section):
    """Equally often everything from `low` to `high`."""

    low: NonNegativeFloat
    high: NonNegativeFloat

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"got low={self.low:g} above high={self.high:g}, expected low <= high")
        return self

    def draw(self, random: Random) -> float:
        """Return a value."""
        return random.uniform(self.low, self.high)


class LogNormal(Section):
    """As latencies are: half of them below `median`, one in a hundred above `p99`."""

    median: PositiveFloat
    p99: PositiveFloat

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.median > self.p99:
            raise ValueError(f"got median={self.median:g} above p99={self.p99:g}, expected median <= p99")
        return self

    def draw(self, random: Random) -> float:
        """Return a value."""
        return random.lognormvariate(math.log(self.median), math.log(self.p99 / self.median) / _P99)


class Samples(Section):
    """One of these, each equally often."""

    samples: tuple[NonNegativeFloat, ...] = Field(min_length=1)

    def draw(self, random: Random) -> float:
        """Return a value."""
        return random.choice(self.samples)


def _kind(value: Any) -> str | None:
    names = (
        value if isinstance(value, dict) else type(value).model_fields if isinstance(value, Section) else ()
    )
    return next((name for name in ("low", "median", "samples") if name in names), None)


Times = Annotated[
    Annotated[Uniform, Tag("low")] | Annotated[LogNormal, Tag("median")] | Annotated[Samples, Tag("samples")],
    Discriminator(
        _kind,
        custom_error_type="times",
        custom_error_message="expected a number, {low = 1, high = 3}, {median = 1, p99 = 30} or {samples = [1, 1, 9]}",
    ),
    BeforeValidator(lambda value: {"samples": [value]} if type(value) in (int, float) else value),
]
"""A number, `{low = 1, high = 3}`, `{median = 1, p99 = 30}` or `{samples = [1, 1, 9]}`."""
_NOTHING = Samples(samples=(0,))


class Sampler(Section):
    """One inference engine (`rollout.engines` of them); its rollouts share it evenly."""

    tokens_per_s: PositiveFloat = 2000
    """Of all its rollouts together."""
    tokens_per_s_of_one: PositiveFloat = 50
    """Most that one rollout gets."""
    tokens: Times = LogNormal(median=100, p99=800)
    """Sampled in one turn."""
    load_s: Times = _NOTHING
    """To load new weights; nothing is sampled meanwhile."""


class EnvironmentTimes(Section):
    """What an environment takes."""

    make_s: Times = _NOTHING
    """To make and reset it."""
    turns: Times = Samples(samples=(8,))
    """Turns of a rollout, rounded, at least one."""
    step_s: Times = LogNormal(median=1, p99=30)
    """One turn's step, such as a tool call."""
    task_factor: Times = Samples(samples=(1,))
    """By which the steps of a task take longer, drawn once for each task: its rollouts are alike."""
    rollout_factor: Times = Samples(samples=(1,))
    """By which the steps of a rollout take longer, drawn once for each."""
    grade_s: Times = _NOTHING
    """To evaluate it; the reward workers' time is `reward_s`."""
    success: Share = 0.5
    """Of the rollouts; it decides how many groups have no variance."""


class LearnerTimes(Section):
    """What the learner takes."""

    step_s: Times = Samples(samples=(30,))
    """One step's update."""
    other_s: Times = _NOTHING
    """What the loop does between two steps beside it: publish, report, save."""


class Faults(Section):
    """What goes wrong."""

    lost: Share = 0
    """Of the rollouts: their environment is lost on the way, and they are sampled again (`filter.resamples`)."""
    refused: float = Field(default=0, ge=0, lt=1)
    """Of the starts: ROCK has no room, and is asked again later."""
    refused_s: Times = Samples(samples=(5,))
    """Until it is asked again."""
    away: tuple[tuple[NonNegativeFloat, PositiveFloat], ...] = ()
    """When ROCK cannot be reached: after so many seconds of the run, for so many."""
    slow: Share = 0
    """Of the plans of each worker: environments take `slow_factor` times as long."""
    slow_factor: Annotated[float, Field(ge=1)] = 5


class Recorded(Section):
    """A step of a run as it was measured."""

    rollouts: tuple[tuple[NonNegativeInt, Measured, Measured], ...] = Field(min_length=1)
    """Of each the turns, the seconds sampled, and the seconds in all."""
    beside_s: Measured = 0
    """By which playing them took longer than the longest."""
    learn_s: Measured = 0
    other_s: Measured = 0
    """As `LearnerTimes.other_s`."""


class FleetTimes(Section):
    """All of it."""

    sampler: Sampler = Sampler()
    environment: EnvironmentTimes = EnvironmentTimes()
    learner: LearnerTimes = LearnerTimes()
    reward_s: Times = _NOTHING
    """To judge rollouts, those of a call beside each other."""
    faults: Faults = Faults()
    recorded: tuple[Recorded, ...] = ()
    """Where there are any, one after the other says what a plan's rollouts, and a step, take; a token is then a second of
    sampling, and nobody waits for others, because what was recorded waited."""

    def recorded_at(self, step: int) -> Recorded | None:
        """Return which recorded step a plan takes its times from."""
        return self.recorded[(step - 1) % len(self.recorded)] if self.recorded else None
