"""A learner of two ranks behind the face of one: the same weights, monitors and checkpoints, and an end without a hang."""

import numpy as np
import pytest
import torch
from learner_cases import rows_of, weighted_likelihood
from random_llama import random_llama

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from rock_env.errors import InvalidArgument
from trainer.algo.base import LossOutput
from trainer.algo.terms.monitors import Monitors
from trainer.engine.base import OptimOptions
from trainer.engine.hf import ENGINE, HFOptions

pytestmark = pytest.mark.slow

OPTIM = OptimOptions(microbatch_tokens=64)
BATCHES = [
    rows_of(lengths, seed=len(lengths), vocabulary=256) for lengths in ([40, 9, 23, 40, 17], [12], [30, 5, 7])
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return random_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def pool(folder):
    made = ENGINE.train(folder, HFOptions(ranks=2, device="cpu", checkpointing=True), 0, OPTIM)
    yield made
    made.close()


def single(folder):
    return ENGINE.train(folder, HFOptions(device="cpu"), 0, OPTIM)


def not_a_number(batch, logprobs_BT):
    return LossOutput(logprobs_BT.sum() * torch.nan)


def largest_difference(one, two):
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


def test_a_pool_learns_tells_saves_and_exports_what_one_process_does(folder, pool, tmp_path):
    one = single(folder)
    begun = one.weights()
    begun = {name: value.copy() for name, value in begun.items()}
    accounts = Monitors(), Monitors()
    for batch in BATCHES:
        told, expected = (
            engine.step(batch, account.watch(weighted_likelihood), lr=1e-3)
            for engine, account in zip((pool, one), accounts, strict=True)
        )
        assert told == pytest.approx(expected, rel=1e-4)
    assert largest_difference(pool.weights(), one.weights()) < 1e-5
    assert accounts[0].trained == accounts[1].trained > 0  # what the token ledger closes with
    assert accounts[0].metrics() == pytest.approx(accounts[1].metrics(), rel=1e-3, abs=1e-5)
    torch.testing.assert_close(pool.logprobs(BATCHES[0]), one.logprobs(BATCHES[0]), atol=1e-5, rtol=1e-5)
    earlier = pool.logprobs(BATCHES[0], begun)
    torch.testing.assert_close(earlier, single(folder).logprobs(BATCHES[0]), atol=1e-5, rtol=1e-5)

    (tmp_path / "saved").mkdir()
    pool.save(tmp_path / "saved")
    resumed = single(folder)
    resumed.load(tmp_path / "saved")
    assert largest_difference(resumed.weights(), pool.weights()) == 0.0

    with pytest.raises(FloatingPointError, match="the loss is nan"):
        pool.step(BATCHES[1], not_a_number, lr=1e-3)
    with pytest.raises(InvalidArgument, match="cannot read the training state"):
        pool.load(tmp_path)
    assert largest_difference(resumed.weights(), pool.weights()) == 0.0

    (tmp_path / "model").mkdir()
    pool.export(tmp_path / "model")
    sampler = ENGINE.inference(str(tmp_path / "model"), HFOptions(device="cpu"), 0)
    ids = BATCHES[0].tokens_BT[0, :12].numpy().astype(np.int32)
    (answer,) = sampler.sample([SampleRequest("r", 0, ids, SamplingParams(max_tokens=4), 0)])
    assert len(answer.ids) >= 1
    again = single(str(tmp_path / "model"))
    assert largest_difference(again.weights(), pool.weights()) == 0.0


def test_a_rank_that_ends_ends_the_others_and_is_told_of(pool):
    pool._processes[1].kill()
    with pytest.raises(RuntimeError, match="a rank of the learner ended"):
        pool.step(BATCHES[0], weighted_likelihood, lr=1e-3)
    for process in pool._processes:
        assert not process.is_alive()


def test_ranks_that_cannot_begin_say_why(folder):
    with pytest.raises(ValueError, match="adapters train in one process only"):
        HFOptions(ranks=2, lora_rank=4)
