"""Where the processes of a run are: named roles on a pool of bundles (docs/placement.md)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from trainer.config.section import Section

__all__ = ["Bundle", "PlacementOptions"]

Bundles = tuple[NonNegativeInt, ...]
"""Their numbers in the pool, from 0."""


class Bundle(Section):
    """A part of one machine that a run reserves."""

    cpus: PositiveInt
    """Processors: each process in it takes one."""
    gpus: NonNegativeInt = 0
    """Whole devices."""
    memory_gb: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Memory of each device, of the bundle's share of its machine where it has none, in GB (10^9 bytes), which the estimates
    must fit into; 0: not known, and nothing is compared."""


class PlacementOptions(Section):
    """Where the processes of a run are: named roles on a pool of bundles (docs/placement.md)."""

    pool: tuple[Bundle, ...] = ()
    """Tables of `cpus`, `gpus` and `memory_gb`, numbered from 0: what Ray reserves for the run. Empty: Ray has every process
    where there is room."""
    layout: Literal["colocated", "disaggregated", "overlapping"] = "colocated"
    """`colocated` has samplers in the learner's bundle, asleep while it learns; `disaggregated` has none there;
    `overlapping` some."""
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """How Ray lays bundles over machines: on few or on many, if it can or strictly."""
    learner: NonNegativeInt = 0
    """The learner's bundle, which its ranks and its critic share."""
    sampler: Bundles = ()
    """Bundles of the inference engines, in turns. Empty: those that `layout` says."""
    reference: Bundles = ()
    """A bundle for a process that keeps the frozen reference policy. Empty: the learner's process keeps it."""
    reward: Bundles = ()
    """The bundle of the process that asks reward workers. Empty: one without the learner, if there is one."""
    environments: Bundles = ()
    """Bundles of the rollout workers, in turns. Empty: those without the learner, if there are some."""

    @field_validator("reference", "reward")
    @classmethod
    def _is_one(cls, bundles: Bundles) -> Bundles:
        if len(bundles) > 1:
            raise ValueError("expected one bundle: it is one process")
        return bundles

    @model_validator(mode="after")
    def _in_the_pool(self) -> Self:
        chosen = {
            "learner": (self.learner,) if self.learner else (),
            **{name: getattr(self, name) for name in ("sampler", "reference", "reward", "environments")},
        }
        if not self.pool:
            unset = [name for name, bundles in chosen.items() if bundles]
            unset += [name for name in ("layout", "strategy") if getattr(self, name) != _default(name)]
            if unset:
                raise ValueError(
                    f"placement.{unset[0]}={getattr(self, unset[0])!r} would do nothing without placement.pool: name its "
                    "bundles, such as placement.pool=[{cpus=2},{cpus=2}]"
                )
            return self
        for name, bundles in chosen.items():
            beyond = [number for number in bundles if number >= len(self.pool)]
            if beyond:
                raise ValueError(
                    f"placement.{name} names bundle {beyond[0]}, and placement.pool has {len(self.pool)}, numbered from 0"
                )
        return self._as_laid_out()

    def _as_laid_out(self) -> Self:
        if self.layout != "colocated" and len(self.pool) < 2:
            raise ValueError(
                f"placement.layout={self.layout!r} needs a bundle beside the learner's: got placement.pool with one. Add "
                "another, or set placement.layout='colocated'"
            )
        with_learner = [number == self.learner for number in self.samplers]
        found = "overlapping" if any(with_learner) else "disaggregated"
        found = "colocated" if all(with_learner) else found
        if found != self.layout:
            raise ValueError(
                f"placement.layout={self.layout!r}, but samplers in the bundles {list(self.samplers)} beside a learner in "
                f"bundle {self.learner} are {found}: set that, or leave placement.sampler out"
            )
        return self

    @property
    def samplers(self) -> Bundles:
        """Return the bundles of the inference engines."""
        if self.sampler:
            return self.sampler
        if self.layout == "colocated":
            return (self.learner,)
        return self._others if self.layout == "disaggregated" else tuple(range(len(self.pool)))

    @property
    def _others(self) -> Bundles:
        """Return the bundles without the learner, or its own where there is no other."""
        return tuple(n for n in range(len(self.pool)) if n != self.learner) or (self.learner,)

    def bundles(self, role: str) -> Bundles:
        """Return the bundles that processes of a role are in, in turns."""
        if role == "learner":
            return (self.learner,)
        if role == "sampler":
            return self.samplers
        named: Bundles = getattr(self, role)
        return named or ((self.learner,) if role == "reference" else self._others)


def _default(name: str) -> object:
    return PlacementOptions.model_fields[name].default
