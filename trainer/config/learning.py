"""How the parameters are updated, and from what beside a step's rollouts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainer.config.section import Section

__all__ = ["AnchorOptions", "ExploreOptions", "OptimOptions", "ReuseOptions", "WarmupOptions"]


class OptimOptions(Section):
    """AdamW and its schedule, common to all train engines."""

    lr: PositiveFloat = 1e-6
    """Peak learning rate of the RL phase."""
    lr_end: NonNegativeFloat = 0.1
    """Learning rate at the last step, as a share of `lr` (linear decay; 1 is constant)."""
    lr_signal: NonNegativeFloat = 0.0
    """Each step's rate is multiplied by this power of the share of its batch's groups that teach (of which a token has a
    credit; at least one): 0 leaves it alone, 1 is in proportion."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 0.0
    grad_clip: PositiveFloat = 1.0
    """Largest global gradient norm, in the loss's own units; those of IPA are about 0.01 to 0.1."""
    grad_clip_usual: NonNegativeFloat = 0.0
    """Largest multiple of the usual norm: the root of AdamW's mean square over recent gradients. 0: no such bound."""
    minibatches: PositiveInt = 1
    """Optimizer updates per batch; each trajectory takes part in one of them."""
    microbatch_tokens: PositiveInt = 16384
    """Most tokens of one forward and backward pass, padding included; what rows begin with in common counts once."""
    threads: PositiveInt = 1
    """CPU threads of the train engine. With several, products of matrices may be rounded otherwise from run to run."""


class ExploreOptions(Section):
    """What keeps a policy trying, beside any algorithm's own loss (docs/algorithms.md, what holds the entropy up)."""

    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the policy's entropy (nats, mean over all RL tokens of a step) in what is maximised. 0: no such term."""
    entropy_over: Literal["tokens", "turns"] = "tokens"
    """`turns` takes the mean over turns of each turn's mean: long answers then weigh no more than short ones."""
    target_entropy: NonNegativeFloat = 0.0
    """Entropy (nats per sampled token) that `entropy_coef` is moved to hold, step by step, from what it is set to; 0: the
    coefficient stays."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the divergence from the policy that the warm-up ended with (k3, mean over all RL tokens), in the first
    step. 0: no such term. The learner keeps those weights, and so do checkpoints, while the term lasts."""
    kl_until: float = Field(default=1.0, gt=0, le=1)
    """Share of the run's steps over which that weight falls linearly to 0."""

    @model_validator(mode="after")
    def _no_dead_option(self) -> Self:
        needed = {
            "entropy_over": self.entropy_coef or self.target_entropy,
            "kl_until": self.kl_coef,
        }
        wants = {"entropy_over": "entropy_coef or explore.target_entropy"}
        for name, on in needed.items():
            if not on and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"explore.{name}={getattr(self, name)!r} would do nothing: set explore.{wants.get(name, 'kl_coef')}, or "
                    f"leave it out"
                )
        return self


class WarmupOptions(Section):
    """Imitation of a few expert trajectories before reinforcement learning."""

    trajectories: NonNegativeInt = 32
    """Successful oracle trajectories to record, unless `data` is given; 0 starts RL from the model as it is."""
    data: tuple[str, ...] = ()
    """Trajectories to imitate in place of the oracle's: folders of runs, other folders, `.rollouts` files. Whole successes
    on tasks of `train_split` are taken."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the experts' tasks that is not imitated: every epoch reports its loss on them."""
    epochs: NonNegativeInt = 4
    """Passes over them; 0 records experts (for anchors and injection) without a warm-up."""
    batch_trajectories: PositiveInt = 8
    """How many updates a pass takes: one for this many trajectories. Each sees turns of all of them, in a new order."""
    lr: PositiveFloat = 1e-5
    """Learning rate of the first epoch; falls linearly towards `optim.lr_end` of it. `ale sft` reaches that in its last
    epoch, the warm-up of a run would in one more."""


class AnchorOptions(Section):
    """Environment resets: where rollouts start and what is imitated beside RL (docs/ipa.md sections 4 and 5)."""

    scheduler: Literal["none", "sequential", "parallel", "hint"] = "none"
    """`sequential` rolls one anchor per expert back from its last turn; `parallel` spreads up to `per_expert` anchors;
    `hint` starts at the beginning and tells the expert's first actions, fewer as success allows."""
    start_share: float = Field(default=0.25, ge=0.2, le=1)
    """Least share of groups that start at the task's own beginning, with no hint. Below 0.2 the policy would forget how
    tasks begin (docs/ipa.md section 4)."""
    per_expert: PositiveInt = 4
    """Anchors one expert trajectory keeps, the true start among them (parallel)."""
    hint_turns: NonNegativeInt = 0
    """Actions that an expert's first hint tells (hint); 0 tells all."""
    pool: PositiveInt = 256
    """Most expert trajectories kept; the oldest self-sampled ones leave first. As many failures are kept."""
    self_sampled: bool = True
    """Successful rollouts from the true start join the pool, so that experts follow the policy."""
    refresh: NonNegativeInt = 0
    """Steps between refreshes: an expert gives way to a shorter success of the present policy on its task, and what older
    policies did counts half in prefix values. 0: never."""
    replay_share: float = Field(default=0, ge=0, le=1)
    """Share of anchored groups that start where earlier rollouts left an expert's way at a crucial turn and failed, while
    there are any."""
    max_age: NonNegativeInt = 0
    """Steps after which self-sampled experts and failures are no starts any more; 0: never."""
    advance: float = Field(default=0.5, ge=0, le=1)
    """Success (moving average over at least 8 rollouts) at which the anchor moves one turn earlier or the hint shrinks."""
    retreat: float = Field(default=0.1, ge=0, le=1)
    """Success below which, three visits in a row, the anchor moves one turn later or the hint grows."""
    inject: NonNegativeInt = 0
    """Expert trajectories imitated beside RL in each step (weight `lambda_il` of the algorithm)."""
    inject_turns: NonNegativeInt = 0
    """Turns of these trajectories to imitate, drawn evenly in each step and weighted up to stand for all; 0 imitates all."""
    inject_gate: Literal["dry", "none"] = "dry"
    """`dry` imitates an expert only where the last 8 rollouts from its anchor had no success, up to its crucial turn (while
    that is unknown, the anchor's); `none` draws whole expert trajectories at random."""
    inject_until: float = Field(default=0.5, ge=0, le=1)
    """Share of the run's steps over which the imitation weight falls linearly to 0."""


class ReuseOptions(Section):
    """Training again on successes of earlier steps, with the log-probabilities that were stored when they were sampled."""

    trajectories: NonNegativeInt = 0
    """Earlier successes that join each step's batch."""
    max_lag: PositiveInt = 4
    """Most versions that may lie between the weights that sampled a token and those that learn from it. Older successes are
    dropped, and the ledger says so."""
    capacity: PositiveInt = 256
    """Most successes kept; the oldest leave first."""
