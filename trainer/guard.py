"""Whether learning damages the model that it began with: how it finds plain English, and whether its actions are legal.

Halts the run; mends nothing. A rate that suits a policy from scratch destroys a pretrained model within one update,
while the loss falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer.config import TrainConfig
from trainer.errors import Halted
from trainer.evaluation import Evaluator
from trainer.metrics import MetricsLog
from trainer.processes.fleet import Fleet

__all__ = ["Guard"]

_KIND = "guard"
_LEGAL, _TEXT = "legal_share", "text_nll"
_EVALUATED = f"eval/{_LEGAL}"
_RISE = "text_nll_rise"
_WORTH_SAYING = 0.1
"""Share of `guard.text_rise` from which forgetting is said: by default 0.1 nats, a tenth more perplexity."""


class Guard:
    """Measures, and compares with `known`: what was measured first, which the run's state keeps."""

    def __init__(
        self,
        config: TrainConfig,
        fleet: Fleet,
        evaluator: Evaluator,
        log: MetricsLog,
        known: dict[str, float],
    ) -> None:
        self._config, self._options, self._fleet, self._evaluator = config, config.guard, fleet, evaluator
        self._log, self._known = log, known
        warmup = config.warmup
        self._passes = warmup.epochs if warmup.trajectories or warmup.data else 0

    def begin(self) -> None:
        """Measure the model before it learns."""
        if self._known:
            return
        found = self.text()
        if self._plays_around_warmup:
            self._fleet.serve_newest()
            found |= self._legal()
        self._known |= found
        if found:
            self._log.write(-self._passes - 1, _KIND, found)

    def text(self) -> dict[str, float]:
        """Measure how the model finds the text; nothing where nobody asks, or the engine's models read no prose."""
        return self._fleet.text_nll() if self._options.text_rise else {}

    def end_warmup(self) -> None:
        """Measure the published model where it was measured before. Raise `Halted` where the warm-up damaged it."""
        if not self._passes or not self._known:
            return
        found = self.text() | (self._legal() if _LEGAL in self._known else {})
        self._log.write(0, _KIND, found)
        self.check(found, rate="warmup.lr")

    def check(self, now: Mapping[str, float], *, rate: str) -> None:
        """Raise `Halted` where the model was damaged. `rate` is the option of the learning rate that did it."""
        if _TEXT in self._known and _TEXT in now:
            self._check_text(self._known[_TEXT], now[_TEXT], rate)
        if _LEGAL in self._known and _LEGAL in now:
            self._check_legal(self._known[_LEGAL], now[_LEGAL], self._options.tasks, rate)

    def check_evaluation(self, now: Mapping[str, float], *, step: int) -> None:
        """Raise `Halted` where a model that brings weights takes fewer legal actions than in the first evaluation."""
        if _LEGAL not in now or self._config.agent.name or not self._brings_weights:
            return
        if not step:
            self._known[_EVALUATED] = now[_LEGAL]
        before = self._known.get(_EVALUATED)
        if before is not None:
            self._check_legal(before, now[_LEGAL], int(now["episodes"]), "optim.lr")

    def beside_evaluation(self) -> dict[str, float]:
        """Measure the text and how much more it costs than before the model learned; nothing as in `text`."""
        found = self.text()
        if _TEXT not in found or _TEXT not in self._known:
            return found
        return {**found, _RISE: found[_TEXT] - self._known[_TEXT]}

    def forgetting(self, now: Mapping[str, float], *, step: int) -> str:
        """Say that the model has forgotten some of its English, where it did; `now` is of an evaluation."""
        bound, rise = self._options.text_rise, now.get(_RISE, 0.0)
        if rise <= bound * _WORTH_SAYING:
            return ""
        return (
            f"step {step}: the model forgets: plain English costs it {now[_TEXT]:.2f} nats per token, "
            f"{now[_TEXT] - rise:.2f} before it learned. The run halts where that is {bound:g} more (guard.text_rise); "
            "with a lower rate it forgets less."
        )

    @property
    def _plays_around_warmup(self) -> bool:
        """Return whether the warm-up could take legal actions from the model: one that begins from nothing has none."""
        return bool(self._passes and self._options.legal_fall) and self._brings_weights

    @property
    def _brings_weights(self) -> bool:
        return self._config.model != self._config.engine

    def _legal(self) -> dict[str, float]:
        share = self._evaluator.legal_share(self._options.tasks, self._options.turns)
        return {} if math.isnan(share) else {_LEGAL: share}

    def _check_text(self, before: float, now: float, rate: str) -> None:
        bound = self._options.text_rise
        if now - before <= bound:
            return
        raise Halted(
            f"learning damaged the model: got {now:.2f} nats per token of a plain English text, {before:.2f} before it "
            f"learned, expected a rise of at most {bound:g} (guard.text_rise). {self._remedy(rate, 'guard.text_rise')}"
        )

    def _check_legal(self, before: float, now: float, episodes: int, rate: str) -> None:
        fall = self._options.legal_fall
        # Two standard deviations of a share of so many episodes are at most this: actions within one are no chance apart.
        bound = fall + 1 / math.sqrt(episodes)
        if not fall or before - now <= bound:
            return
        raise Halted(
            f"learning damaged the model: got {now:.0%} legal actions in {episodes} episodes, {before:.0%} before, expected "
            f"a fall of at most {bound:.0%} (guard.legal_fall={fall:g}, the rest for chance). "
            f"{self._remedy(rate, 'guard.legal_fall')}"
        )

    def _remedy(self, rate: str, bound: str) -> str:
        section = self._config.warmup if rate == "warmup.lr" else self._config.optim
        return (
            f"Begin a new run with a lower rate than {rate}={section.lr:g} (pretrained models take 1e-5 or less), or set "
            f"{bound}=0 to go on all the same."
        )
