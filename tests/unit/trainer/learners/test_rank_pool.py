"""A learner of several ranks behind the face of one: how it ends, and what it cannot begin with."""

import importlib.util

import pytest
from learner_cases import rows_of, weighted_likelihood
from random_llama import random_llama

from rock_env import plugins
from rock_env.errors import InvalidArgument, UnknownName
from trainer.learners.parallel.kinds import parallelism
from trainer.models.hf import ENGINE, HFOptions
from trainer.protocols.engines import OptimOptions

OPTIM = OptimOptions(microbatch_tokens=64)


@pytest.mark.slow
def test_a_rank_that_ends_ends_the_others_and_is_told_of(tmp_path):
    pool = ENGINE.train(random_llama(tmp_path), HFOptions(ranks=2, device="cpu"), 0, OPTIM)
    pool._processes[1].kill()
    with pytest.raises(RuntimeError, match="a rank of the learner ended"):
        pool.step(rows_of([12, 9], vocabulary=256), weighted_likelihood, lr=1e-3)
    for process in pool._processes:
        assert not process.is_alive()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"parallelism": "zero9"}, UnknownName, "unknown parallelism 'zero9'"),
        ({"offload": True}, InvalidArgument, "cannot keep moments on the host"),
    ],
)
def test_a_parallelism_that_cannot_begin_says_why(options, error, says):
    with pytest.raises(error, match=says):
        ENGINE.train("nowhere", HFOptions(ranks=2, **options), 0, OPTIM)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "trainer.learners.parallel.zero.find_spec", lambda name: None if name == "deepspeed" else find(name)
    )
    with pytest.raises(InvalidArgument, match=r"pip install 'ale-rl\[deepspeed\]'"):
        ENGINE.train("nowhere", HFOptions(ranks=2, parallelism="zero2"), 0, OPTIM)


def test_an_object_that_is_no_parallelism_is_refused():
    with (
        plugins.given({("ale.parallelisms", "mine"): object()}),
        pytest.raises(InvalidArgument, match="is no Parallelism: got object"),
    ):
        parallelism("mine")
