"""A script with an environment beside it, and an algorithm and a reward of its own; none of them is installed."""

import sys

import numpy as np
from echo_env import ENV

import ale
from trainer.algo.base import LossOutput
from trainer.algo.terms.loss import aggregate, keep
from trainer.algo.terms.returns import credit_group


class MeanBaseline:
    """Reinforce with the mean outcome of the group as baseline."""

    needs_prox = False

    def credit(self, group):
        def advantages(learners):
            mean = sum(one.reward for one in learners) / max(len(learners), 1)
            return [np.full(len(one.turns), one.reward - mean) for one in learners]

        return credit_group(group, advantages)

    def loss(self, batch, logprobs_BT):
        gain_BT = keep(logprobs_BT, batch.loss_mask_BT) * batch.advantages_BT
        return LossOutput(-aggregate(gain_BT, batch, "constant"))


def graded(sample):
    """Half a point for any letter, a whole one for the right one."""
    said = sample.trajectory.actions[0].strip()
    return 1.0 if said == sample.task.payload[0] else 0.5 * said.isalpha()


ale.train(
    env=ENV,
    algo=MeanBaseline(),
    reward=graded,
    run=sys.argv[1],
    resume="--resume" in sys.argv,
    steps=2,
    engine_options={"layers": 1, "width": 32},
    agent={"window_turns": 1},
    sampling={"max_tokens": 2},
    rollout={"groups_per_step": 4, "group_size": 4, "workers": 1, "engines": 1},
    warmup={"trajectories": 4, "epochs": 12, "lr": 3e-3},
    eval={"tasks": 8, "every": 0},
)
