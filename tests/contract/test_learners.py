"""What every parallelism must do: move weights as one process does, whatever rows its ranks have, and take its checkpoints.

Over every installed one, with two ranks on the processor; the batches leave a rank with nothing, and are odd and uneven.
"""

import math
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from learner_cases import rows_of, weighted_likelihood
from random_llama import random_llama

from rock_env import plugins
from rock_env.errors import InvalidArgument
from trainer.algo.base import LossOutput
from trainer.algo.terms.critic import critic_loss
from trainer.algo.terms.monitors import Monitors
from trainer.data.batch import Counts
from trainer.data.ledger import Ledger
from trainer.learners.lora import ADAPTER_FOLDER
from trainer.learners.parallel.kinds import parallelism
from trainer.models.hf import ENGINE, HFOptions
from trainer.protocols.engines import OptimOptions

pytestmark = [pytest.mark.slow, pytest.mark.turn(1), pytest.mark.timeout(600)]

OPTIM = OptimOptions(microbatch_tokens=64, weight_decay=0.01, grad_clip_usual=2.0)
LENGTHS = ([40, 9, 23, 40, 17], [12], [30, 5, 7])
"""Of three updates: several parts for each rank, one row alone so that a rank has nothing, an odd number."""
LAST, PROMPT = [20, 21, 22, 20, 21], 16
"""Of one more, whose rows begin with the same tokens, so that parts of it become trees."""


def batch_of(lengths):
    """Return rows with advantages, of which each is one turn with a return for a critic."""
    batch = rows_of(lengths, seed=len(lengths), vocabulary=256)
    first_BT = batch.loss_mask_BT & (batch.loss_mask_BT.cumsum(1) == 1)
    returns_B1 = torch.linspace(-1, 1, len(lengths))[:, None]
    return replace(
        batch,
        opens_turn_BT=torch.where(first_BT, 0, -1),
        returns_BT=torch.where(first_BT, returns_B1, 0.0),
        old_values_BT=torch.zeros(batch.tokens_BT.shape),
        counts=Counts(len(lengths), int(batch.loss_mask_BT.sum()), len(lengths)),
    )


def loss(batch, logprobs_BT):
    policy = weighted_likelihood(batch, logprobs_BT)
    critic, metrics = critic_loss(batch, math.inf)
    return LossOutput(policy.loss + critic, {**policy.metrics, **metrics})


def not_a_number(batch, logprobs_BT):
    return LossOutput(logprobs_BT.sum() * torch.nan)


def not_a_number_where_long(batch, logprobs_BT):
    return not_a_number(batch, logprobs_BT) if batch.tokens_BT.shape[1] > 30 else loss(batch, logprobs_BT)


def apart(one, two):
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


def copied(weights):
    return {name: value.copy() for name, value in weights.items()}


@dataclass
class Kind:
    """A parallelism, and the learners of it that a test started."""

    name: str
    folder: str
    open: list

    def learner(self, *, ranks=2, critic=True, **options):
        made = ENGINE.train(
            self.folder, HFOptions(ranks=ranks, device="cpu", parallelism=self.name, **options), 0, OPTIM
        )
        self.open.append(made)
        if critic:
            made.add_critic(lr=1e-3, seed=0)
        return made

    def alone(self, *, critic=True, **options):
        made = ENGINE.train(self.folder, HFOptions(device="cpu", **options), 0, OPTIM)
        if critic:
            made.add_critic(lr=1e-3, seed=0)
        return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return random_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(params=plugins.names("ale.parallelisms"))
def kind(request, folder):
    if request.param.startswith("zero") and find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed: pip install 'ale-rl[deepspeed]'")
    made = Kind(request.param, folder, [])
    yield made
    for learner in made.open:
        if hasattr(learner, "close"):
            learner.close()


def test_ranks_learn_tell_refuse_and_resume_as_one_process_does(kind, tmp_path):
    ranks, one = kind.learner(checkpointing=True), kind.alone()
    begun = copied(one.weights())
    assert apart(ranks.weights(), begun) == 0.0
    accounts = Monitors(), Monitors()
    for lengths in LENGTHS:
        batch = batch_of(lengths)
        told, expected = (
            learner.step(batch, account.watch(loss), lr=1e-3)
            for learner, account in zip((ranks, one), accounts, strict=True)
        )
        assert told == pytest.approx(expected, rel=1e-4, abs=1e-7)
        assert told["critic/grad_norm"] > 0
    assert apart(ranks.weights(), one.weights()) < 1e-5
    assert accounts[0].metrics() == pytest.approx(accounts[1].metrics(), rel=1e-3, abs=1e-5)
    sampled = sum(int(batch_of(lengths).loss_mask_BT.sum()) for lengths in LENGTHS)
    Ledger(total=sampled, trained=sampled, imitated=0, masked={}, dropped={}).after_losses(
        trained=accounts[0].trained, imitated=accounts[0].imitated, masked=accounts[0].masked
    )

    first = batch_of(LENGTHS[0])
    torch.testing.assert_close(ranks.logprobs(first), one.logprobs(first), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ranks.values(first), one.values(first), atol=1e-5, rtol=1e-5)
    earlier = ranks.logprobs(first, begun)
    torch.testing.assert_close(earlier, kind.alone().logprobs(first), atol=1e-5, rtol=1e-5)

    before = copied(ranks.weights())
    for refused in (
        not_a_number,
        not_a_number_where_long,
    ):  # at once, and when some gradients are there already
        with pytest.raises(FloatingPointError, match="the loss is nan"):
            ranks.step(first, refused, lr=1e-3)
    assert ranks.step(rows_of([9, 12], trained=0, vocabulary=256), loss, lr=1e-3)["grad_norm"] == 0.0
    assert apart(ranks.weights(), before) == 0.0

    ranks.save(tmp_path)
    resumed = [kind.alone(), kind.learner(ranks=3)]
    last = batch_of(LAST)
    last.tokens_BT[:, :PROMPT] = last.tokens_BT[0, :PROMPT].clone()
    for learner in resumed:
        learner.load(tmp_path)
        assert apart(learner.weights(), before) == 0.0
    for learner in (ranks, *resumed):
        learner.step(last, loss, lr=1e-3)
    one.step(last, loss, lr=1e-3)
    for learner in (ranks, *resumed):
        assert apart(learner.weights(), one.weights()) < 1e-5
        torch.testing.assert_close(learner.values(first), one.values(first), atol=1e-5, rtol=1e-5)

    (tmp_path / "model").mkdir()
    ranks.export(tmp_path / "model")
    again = ENGINE.train(str(tmp_path / "model"), HFOptions(device="cpu"), 0, OPTIM)
    assert apart(again.weights(), ranks.weights()) == 0.0


@pytest.mark.skipif(find_spec("peft") is None, reason="needs peft: pip install 'ale-rl[lora]'")
def test_adapters_train_over_ranks_as_in_one_process(kind, tmp_path):
    import peft

    ranks, one = kind.learner(critic=False, lora_rank=4), kind.alone(critic=False, lora_rank=4)
    begun = copied(one.weights())
    for lengths in LENGTHS:
        for learner in (ranks, one):
            learner.step(batch_of(lengths), weighted_likelihood, lr=1e-2)
    weights = one.weights()
    assert apart(ranks.weights(), weights) < 1e-5
    assert apart(begun, weights) > 1e-3
    first = batch_of(LENGTHS[0])
    earlier = ranks.logprobs(first, begun)
    torch.testing.assert_close(earlier, kind.alone(critic=False).logprobs(first), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ranks.logprobs(first), one.logprobs(first), atol=1e-5, rtol=1e-5)

    ranks.save(tmp_path)
    resumed = kind.alone(critic=False, lora_rank=4)
    resumed.load(tmp_path)
    assert apart(resumed.weights(), ranks.weights()) < 1e-6

    (tmp_path / "model").mkdir()
    ranks.export(tmp_path / "model")
    base = transformers.AutoModelForCausalLM.from_pretrained(kind.folder, dtype=torch.float32)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "model" / ADAPTER_FOLDER).eval()
    with torch.no_grad():
        logits = (model.eval()(input_ids=first.tokens_BT).logits for model in (loaded, resumed.net.model))
        torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


def test_moments_lie_on_the_host_where_a_parallelism_can_have_them_there(kind):
    if not parallelism(kind.name).offloads:
        with pytest.raises(InvalidArgument, match="cannot keep moments on the host"):
            kind.learner(offload=True)
        return
    ranks, one = kind.learner(offload=True), kind.alone()
    for lengths in LENGTHS:
        for learner in (ranks, one):
            learner.step(batch_of(lengths), loss, lr=1e-3)
    assert apart(ranks.weights(), one.weights()) < 1e-5
