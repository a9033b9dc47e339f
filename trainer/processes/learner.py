"""The Ray actor around the engine that learns.

It translates between encoded trajectories and batches, holds the weights' version, and decides nothing about the run.
`ready` builds what `__init__` would, because Ray reports an error there as a dead process and loses its class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.agents.conversation import prompt_after
from agent_runtime.policy import ChatTemplate, Thought, thought_of
from agent_runtime.store import decode
from agent_runtime.types import Trajectory
from rock_env.plugins import NO_OWN, Own, env_params, give, load, load_env
from trainer.algo.base import (
    Algorithm,
    AlgorithmSpec,
    Credit,
    NeedsCritic,
    NeedsReference,
    NeedsSnapshots,
    SparesProx,
    credit_step,
)
from trainer.algo.terms.kl import KLOptions
from trainer.algo.terms.monitors import Monitors, critic_metrics, lag_metrics, outcome_metrics
from trainer.config import TrainConfig
from trainer.data.batch import TrainBatch
from trainer.data.branches import check_used, share_credit, trained_part
from trainer.data.build import build_batch, rows_of_parts, shuffled_rows, split_rows
from trainer.data.ledger import TOO_OLD, Ledger
from trainer.data.reuse import Drawn, ReuseBuffer
from trainer.data.screen import check_experts, screened_credits
from trainer.data.thoughts import without_thoughts
from trainer.data.values import states_of, values_per_turn, with_next_state
from trainer.environments import name_of
from trainer.errors import ConfigError
from trainer.learners.explorer import Explorer, Held
from trainer.learners.versions import Versions, versions_kept
from trainer.models.chosen import learner_of, sampler_of
from trainer.models.plain_text import plain_batch, plain_text, text_nll
from trainer.processes.telling import tell
from trainer.protocols.engines import LearnsValues, LossFn, Weights
from trainer.protocols.memory import Part, TellsPart
from trainer.rollout.curriculum import mask_negatives
from trainer.rollout.filtering import rejection
from trainer.rollout.starts import Injection
from trainer.rollout.tasks import agent_of
from trainer.samplers.arrival import Arrived, check_agreement
from trainer.samplers.proof import Digests, digests, precisions
from trainer.seeds import derive

__all__ = ["Learner", "Prepared"]

_NORMS = ("grad_norm", "critic/grad_norm")


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A step that is ready to be learned."""

    trajectories: list[Trajectory]
    """As they are learned: what was sampled, earlier successes that join, and experts, in this order."""
    credits: list[Credit]
    batch: TrainBatch
    ledger: Ledger
    outcomes: dict[str, float]
    """Metrics of the credits."""
    held: Held
    """What keeps the policy trying."""
    lr_share: float
    """What the learning rate is multiplied by."""


class Learner:
    """Owns the train engine and the algorithm."""

    def __init__(
        self, config: TrainConfig, reference: Callable[[TrainBatch], torch.Tensor] | None = None
    ) -> None:
        """Take what says the log-probabilities under the reference policy; None: a model of its own, where it needs one."""
        self._config, self._reference = config, reference
        self._experts: dict[str, Trajectory] = {}
        self._held_out: list[Trajectory] = []
        self._reuse = ReuseBuffer(config.reuse)
        self._version = 0
        self._precisions: dict[str, torch.dtype] | None = None
        self._sent: Digests = {}
        self._is_compared = False

    @property
    def template(self) -> ChatTemplate:
        """Return how its model writes conversations as tokens."""
        return self._template

    def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Build the engine and the algorithm, among `own` plugins too. First of all calls."""
        give(own)
        tell(told_as)
        config = self._config
        torch.set_num_threads(config.optim.threads)
        spec, options = learner_of(config)
        algorithm = load("ale.algorithms", config.algo)
        assert isinstance(algorithm, AlgorithmSpec)
        imitation = load("ale.algorithms", "bc")
        assert isinstance(imitation, AlgorithmSpec)
        self._engine = spec.train(config.model, options, config.seed, config.optim)
        self._half = options.half or sampler_of(config)[1].half
        # A CLI agent may sample at a temperature of its own, a sampler of another engine as it likes.
        same = sampler_of(config)[0].name == spec.name and not config.agent.name
        self._agreement = spec.agreement if same and not self._half else 0.0
        self._template = spec.template(config.model, options)
        self._plain: TrainBatch | None = None
        if spec.prose is not None and config.guard.text_rise:
            ids = spec.prose(config.model, options, plain_text())
            self._plain = plain_batch(ids, self._template.max_context)
        chosen = algorithm.options(**config.algo_options)
        if config.optim.minibatches == 1 and isinstance(chosen, KLOptions) and chosen.kl_reference == "prox":
            raise ConfigError(
                "kl_reference='prox' has no effect with optim.minibatches=1: the policy is pi_prox itself while the only "
                "update of a batch is computed. Set optim.minibatches to at least 2, or kl_reference='sampler' or 'frozen'."
            )
        self._algo: Algorithm = algorithm.build(chosen)
        self._bc: Algorithm = imitation.build(imitation.options())
        self._learns_from_rollouts = algorithm.learns_from_rollouts
        needs_reference = isinstance(self._algo, NeedsReference) and self._algo.needs_reference
        if needs_reference and self._reference is None:
            self._reference = spec.train(config.model, options, config.seed, config.optim).logprobs
        self._snapshots = self._algo.snapshots if isinstance(self._algo, NeedsSnapshots) else 0
        self._explorer = Explorer(config, self._engine, learns=self._learns_from_rollouts)
        self._versions = Versions(versions_kept(config, self._snapshots))
        self._thought = self._thinks()
        self._critic: tuple[NeedsCritic, LearnsValues] | None = None
        if isinstance(self._algo, NeedsCritic):
            if not isinstance(self._engine, LearnsValues):
                raise ConfigError(
                    f"algo {config.algo!r} needs a critic and the engine {spec.name!r} can have none: its train engine "
                    "has no `add_critic`. Choose another model, or an algorithm without a critic such as grpo."
                )
            self._engine.add_critic(lr=self._algo.value_lr, seed=derive(config.seed, "critic"))
            self._critic = self._algo, self._engine

    def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    def largest_part(self) -> Part | None:
        """Return the largest forward and backward pass so far; None where there was none, or the engine does not say."""
        return self._engine.largest if isinstance(self._engine, TellsPart) else None

    def learns_from_rollouts(self) -> bool:
        """Return whether the algorithm needs training rollouts at all."""
        return self._learns_from_rollouts

    def take_experts(self, encoded: Sequence[bytes], held_out: Sequence[bytes]) -> None:
        """Keep expert trajectories: for `imitate` and injections, and those that only `measure` sees.

        Raise `BatchError` for one of another environment or tokenizer.
        """
        experts, apart = ([decode(data) for data in each] for each in (encoded, held_out))
        envs = [load_env(each.env).key for each in self._config.shares]
        check_experts([*experts, *apart], envs=envs, template=self._template)
        self._experts, self._held_out = {expert.id: expert for expert in experts}, apart

    def imitate(self, *, lr: float, batch_trajectories: int, seed: int) -> dict[str, float]:
        """One pass of imitation over the experts, in an order drawn from `seed`. Return mean metrics."""
        experts = list(self._experts.values())
        batch, ledger = build_batch(
            experts, self._bc.credit(experts), token_budget=self._config.rollout.token_budget
        )
        parts = shuffled_rows(batch, -(-len(experts) // batch_trajectories), seed)
        return self._learn(parts, self._bc.loss, ledger, Monitors(), lr=lr)

    def measure(self) -> dict[str, float]:
        """Return the mean loss of a held-out expert token, `held_out_loss`; nothing where none is held out."""
        if not self._held_out:
            return {}
        batch, _ = build_batch(self._held_out, self._bc.credit(self._held_out), token_budget=1)
        found = self._bc.loss(batch, self._engine.logprobs(batch)).metrics["imitation_nll"]
        return {"held_out_loss": found.total / found.weight} if found.weight else {}

    def text_nll(self) -> dict[str, float]:
        """Return how the policy finds plain English, `text_nll`; nothing where its engine's models read no prose."""
        if self._plain is None:
            return {}
        return {"text_nll": text_nll(self._engine, self._plain)}

    def update(
        self, encoded: Sequence[bytes], injections: Sequence[Injection], *, lr: float, step: int = 1
    ) -> dict[str, float]:
        """Credit the groups, build the batch, take one optimizer step per minibatch. Return metrics.

        `step` is the learning step, from 1, whatever steps the rollouts were planned for.

        Raise `BatchError` for records that must not be learned, `FloatingPointError` for an update that is not finite,
        `LedgerError` where a token is unaccounted for.
        """
        return self.learn(self.prepare(encoded, injections, step=step), lr=lr, step=step)

    def prepare(self, encoded: Sequence[bytes], injections: Sequence[Injection], *, step: int) -> Prepared:
        """Credit the groups and build the batch of learning step `step`, from 1; what is kept for reuse changes, the model
        does not.

        Raise `BatchError` for records that must not be learned, `LedgerError` where a token is unaccounted for.
        """
        config = self._config
        labels, rule = config.rollout.train_labels, config.rollout.branch_credit
        trajectories = [decode(data) for data in encoded]
        check_used(trajectories, labels, rule)
        # Of the whole record, as the rollout workers judged it: what is cut out may stand between two faults, or have one.
        rejected = {trajectory.id: rejection(trajectory, config.filter) for trajectory in trajectories}
        parts = [trained_part(trajectory, labels) for trajectory in trajectories]
        trajectories = [part for part, _ in parts]
        context = sum((left for _, left in parts), Counter[str]())
        credits = screened_credits(trajectories, self._credits, lambda part: rejected[part.id])
        credits = share_credit(trajectories, mask_negatives(trajectories, credits, config, step), rule)
        outcomes = outcome_metrics(trajectories, credits) | critic_metrics(trajectories, credits)
        held = self._explorer.at(step, trajectories)
        lr_share = self._lr_share(trajectories, outcomes)
        again = self._draw_again(trajectories, credits, step)
        # Of the step's own: what `reuse` brings back has a bound of its own.
        if (oldest := config.rollout.oldest(self._version + 1)) is not None:
            credits = [replace(credit, oldest=oldest) for credit in credits]
        trajectories += again.trajectories
        credits += again.credits
        for injection in injections:
            expert, credit = self._inject(injection)
            trajectories.append(expert)
            credits.append(credit)
        if self._snapshots:
            credits = self._versions.without_gone(trajectories, credits)
        credits = held.credits(credits)
        if self._thought is not None:
            trajectories, context["thought"] = without_thoughts(trajectories, self._thought)
        batch, ledger = build_batch(trajectories, credits, token_budget=config.rollout.token_budget)
        batch = replace(batch, temperature=config.sampling.temperature)
        ledger = ledger.with_reuse(
            sum(trajectory.sampled_tokens for trajectory in again.trajectories), {TOO_OLD: again.too_old}
        )
        ledger = ledger.with_context(context)
        if config.optim.minibatches > 1 and self._algo.needs_prox:
            batch = self._with_prox(batch)
        if self._reference is not None:
            batch = replace(batch, reference_logprobs_BT=self._reference(batch))
        if self._snapshots:
            batch = replace(batch, old_logprobs_BT=self._versions.logprobs(batch, self._engine.logprobs))
        batch = self._explorer.batch(batch, held, self._engine.logprobs)
        outcomes |= {**held.metrics(), **({"lr_share": lr_share} if config.optim.lr_signal else {})}
        return Prepared(trajectories, credits, batch, ledger, outcomes, held, lr_share)

    def _thinks(self) -> Thought | None:
        """Return how the model's thoughts are told, where they are not learned; refuse settings that it cannot carry out."""
        config, setting = self._config, "rollout.train_thinking=false"
        if not config.rollout.train_thinking:
            if isinstance(self._algo, NeedsCritic):
                raise ConfigError(
                    f"{setting} leaves a critic no state to judge: got algo {config.algo!r}, expected one without a critic, "
                    "such as grpo. Choose one, or leave rollout.train_thinking out."
                )
            return thought_of(self._template, setting)
        if config.sampling.thinking_tokens:
            thought_of(self._template, f"sampling.thinking_tokens={config.sampling.thinking_tokens}")
        return None

    def _lr_share(self, trajectories: Sequence[Trajectory], outcomes: Mapping[str, float]) -> float:
        """Return by what the step's learning rate is multiplied: a power of the share of groups that teach, at least one."""
        groups = max(len({t.group_id for t in trajectories}), 1)
        return float((max(outcomes.get("credit/groups", 0.0), 1.0) / groups) ** self._config.optim.lr_signal)

    def _with_prox(self, batch: TrainBatch) -> TrainBatch:
        """Return the batch with log pi_prox, or as fresh where that changes nothing and spares the pass over it."""
        sampled_BT = batch.policy_version_BT[batch.loss_mask_BT] == self._version
        if (
            self._agreement
            and isinstance(self._algo, SparesProx)
            and bool(sampled_BT.all())
            and self._algo.spares_prox(batch, self._agreement)
        ):
            return replace(batch, fresh=True)
        return replace(batch, prox_logprobs_BT=self._engine.logprobs(batch))

    def learn(self, prepared: Prepared, *, lr: float, step: int) -> dict[str, float]:
        """Take one optimizer step per minibatch of a step's batch. Return metrics, those of `prepare` included.

        Raise `Halted` where the first batch of a run shows that its samplers compute something else than the learner.
        """
        batch = prepared.batch
        monitors = Monitors(skip_zero_credit=not any(credit.every_token for credit in prepared.credits))
        parts = split_rows(batch, self._config.optim.minibatches)
        loss = self._loss(prepared, step)
        metrics = self._learn(parts, loss, prepared.ledger, monitors, lr=lr * prepared.lr_share)
        self._compare(monitors.gap(self._version))
        lag = lag_metrics(batch, self._version, prepared.ledger if self._config.rollout.staleness else None)
        return {**metrics, **prepared.outcomes, **lag}

    def _compare(self, gap_N: NDArray[np.float64]) -> None:
        """Look once at how far the samplers are from the weights that they have by their digests."""
        if self._precisions is not None and not self._is_compared and len(gap_N):
            check_agreement(gap_N, half=self._half, bound=self._config.guard.mismatch)
            self._is_compared = True

    def learn_and_tell(
        self, prepared: Prepared, *, lr: float, step: int
    ) -> Iterator[tuple[NDArray[np.int64], Mapping[str, torch.Tensor]]]:
        """Learn as `learn` does; yield before each update its rows, and which tokens its loss masks, by reason."""
        batch, parts = prepared.batch, self._config.optim.minibatches
        loss = self._loss(prepared, step)
        for rows, part in zip(rows_of_parts(batch, parts), split_rows(batch, parts), strict=True):
            logprobs_BT = self._engine.logprobs(part)
            yield rows, loss(replace(part, entropy_BT=torch.zeros_like(logprobs_BT)), logprobs_BT).masked
            self._engine.step(part, loss, lr=lr * prepared.lr_share)

    def _loss(self, prepared: Prepared, step: int) -> LossFn:
        """Return the loss of a step, which is another one while a critic is warming up."""
        if self._critic is not None and step <= self._critic[0].value_warmup:
            return self._critic[0].warmup_loss
        return prepared.held.loss(self._algo.loss)

    def logprobs(self, batch: TrainBatch) -> torch.Tensor:
        """Return the log-probability of each token of a batch under the present weights, as `TrainBatch` lays them out."""
        return self._engine.logprobs(batch)

    def _credits(self, trajectories: Sequence[Trajectory]) -> list[Credit]:
        """Return the step's credit, under the critic's values if there is one."""
        if self._critic is None:
            return credit_step(self._algo, trajectories)
        algorithm, engine = self._critic
        asked = [self._with_next(t) if algorithm.bootstraps(t) else t for t in trajectories]
        return credit_step(self._algo, trajectories, _values(engine, asked, trajectories))

    def _with_next(self, trajectory: Trajectory) -> Trajectory:
        """Return the trajectory with the state after its last turn, unless that would not fit the context.

        What a program of somebody else would have asked next is not known: its sessions stay as they are.
        """
        if trajectory.is_session:
            return trajectory
        agent = self._config.agent
        instruction = ""
        if agent.system and (agent.window_turns or agent.kind == "long_horizon"):
            spec = load_env(name_of(trajectory))
            split, _, index = trajectory.task_id.rpartition("/")
            tasks = spec.tasks(env_params(spec, trajectory.params_json))
            instruction = tasks.get(split, int(index)).instruction
        max_tokens = self._config.sampling.max_tokens
        prompt = prompt_after(
            trajectory,
            agent_of(self._config),
            self._template,
            instruction=instruction,
            max_tokens=max_tokens,
        )
        fits = len(prompt.ids) + max_tokens <= self._template.max_context
        return with_next_state(trajectory, prompt) if fits else trajectory

    def _learn(
        self,
        parts: Sequence[TrainBatch],
        loss: LossFn,
        ledger: Ledger,
        monitors: Monitors,
        *,
        lr: float,
    ) -> dict[str, float]:
        """Take one optimizer step per part; return the means of their metrics, the monitors and the closed ledger."""
        history = [self._engine.step(part, monitors.watch(loss), lr=lr) for part in parts]
        names = dict.fromkeys(name for metrics in history for name in metrics)
        means = {name: float(np.mean([m[name] for m in history if name in m])) for name in names}
        closed = ledger.after_losses(
            trained=monitors.trained, imitated=monitors.imitated, masked=monitors.masked
        )
        updates = float(sum(any(metrics.get(norm) for norm in _NORMS) for metrics in history))
        return {**means, "updates": updates, **monitors.metrics(), **closed.metrics()}

    def prove_to(self, arrived: Arrived | None) -> None:
        """Digest weights from now on as samplers do that stated this, and compare log-probabilities in the first batch."""
        self._precisions = precisions(arrived.digests) if arrived else {}

    def sent(self) -> Digests:
        """Return the digests of the weights that were given away last."""
        return self._sent

    def _given(self, weights: Weights) -> Weights:
        self._sent = digests(weights, dtype=self._precisions) if self._precisions else {}
        return weights

    def weights(self) -> Weights:
        """Return the current parameters."""
        return self._given(self._engine.weights())

    def publish(self, version: int) -> Weights:
        """Return the current parameters, which are policy `version` from now on."""
        weights = self.weights()
        self._version = version
        self._versions.add(version, weights)
        self._explorer.published(version, weights)
        return weights

    def behind(self, lag: int) -> tuple[int, Weights]:
        """Return the version published `lag` versions ago, or the oldest that is kept, and its weights."""
        version, weights = self._versions.behind(lag)
        return version, self._given(weights)

    def save(self, folder: Path) -> None:
        """Write parameters, optimizer state, the versions kept and the successes kept for reuse."""
        self._engine.save(folder)
        self._versions.save(folder)
        self._reuse.save(folder)
        self._explorer.save(folder)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        self._engine.load(folder)
        self._versions.load(folder)
        self._reuse.load(folder)
        self._explorer.load(folder)

    def export(self, folder: Path) -> None:
        """Write the model for `--model FOLDER`."""
        self._engine.export(folder)

    def _draw_again(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit], step: int) -> Drawn:
        """Return the earlier successes that join a step, and keep the step's own for later ones.

        Their credit is that of their own step; what the critic says of them as the updates begin is asked anew.
        """
        if not trajectories:
            return Drawn([], [], 0)
        drawn = self._reuse.draw(step - 1, derive(self._config.seed, "reuse", step))
        self._reuse.keep(trajectories, credits)
        if self._critic is None or not drawn.trajectories:
            return drawn
        values = _values(self._critic[1], drawn.trajectories, drawn.trajectories)
        return replace(
            drawn,
            credits=[
                replace(credit, value_K=np.nan_to_num(values_L[:-1], nan=0.0))
                for credit, values_L in zip(drawn.credits, values, strict=True)
            ],
        )

    def _inject(self, injection: Injection) -> tuple[Trajectory, Credit]:
        expert = self._experts[injection.trajectory_id]
        (credit,) = self._algo.credit([expert])
        chosen = np.isin(expert.env_steps_before, injection.turns)
        gate = np.where(chosen, injection.weight, 0.0)
        return expert, replace(credit, imitation_K=credit.imitation_K * gate)


def _values(
    engine: LearnsValues, asked: Sequence[Trajectory], trajectories: Sequence[Trajectory]
) -> list[NDArray[np.float64]]:
    """Return the critic's values, K + 1 for each of the trajectories, which `asked` may have with a further turn."""
    states = states_of(asked)
    return values_per_turn([len(t.turns) for t in trajectories], states, engine.values(states))
