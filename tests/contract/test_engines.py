"""What every installed engine must do: sample reproducibly, learn, resume, export, and agree with itself.

An engine is asked for the model of its own name, as `--model NAME` does. One without such a model gets a small random one,
written to a temporary folder by `MODELS`.
"""

import dataclasses

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from random_llama import random_llama

from agent_runtime.policy import Message, PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from rock_env import plugins
from rock_env.errors import InvalidArgument
from trainer.algo.base import LossOutput
from trainer.algo.terms.critic import critic_loss
from trainer.data.batch import Counts, TrainBatch
from trainer.protocols.engines import EngineSpec, LearnsValues, OptimOptions

GRIDS = ("P_O\n_O_\n__G", "_PO\n_O_\n__G", "#####\n#PXO#\n#####\n#___#\n#####")


MODELS = {"hf": random_llama}
ANSWERS = {"coder": ("left", "undo", "run_tests", "submit")}
"""Of engines whose first token says what kind of answer it is."""


@dataclasses.dataclass
class Engine:
    """One engine with a model, and fresh instances of its parts."""

    spec: EngineSpec
    model: str

    @property
    def answers(self):
        """Return four short answers that the engine can tell apart."""
        return ANSWERS.get(self.spec.name, ("left", "down", "right", "up"))

    def __post_init__(self):
        self.options = self.spec.options(max_context=160)
        self.template = self.spec.template(self.model, self.options)

    def inference(self, *, seed=0, weights_of=None, version=1, **options):
        engine = self.spec.inference(self.model, self.spec.options(max_context=160, **options), seed)
        engine.load((weights_of or self.train()).weights(), version)
        return engine

    def train(self, *, seed=0, **optim):
        return self.spec.train(self.model, self.options, seed, OptimOptions(**{"lr": 1e-2, **optim}))

    def learned(self):
        """Return a train engine that left its start, so that log-probabilities differ between tokens."""
        train = self.train()
        for _ in range(6):
            train.step(self.batch(self.expert_completions()), raise_all, lr=1e-2)
        return train

    def prompts(self, n):
        return [self.template.open([Message("user", GRIDS[i % len(GRIDS)])]) for i in range(n)]

    def requests(self, n, **params):
        how = SamplingParams(**{"max_tokens": 5, **params})
        return [SampleRequest(f"r{i}", i % 3, p, how, 100 + i) for i, p in enumerate(self.prompts(n))]

    def expert_completions(self):
        words = self.answers
        return [
            (prompt, self.template.encode_completion(words[i % 4]), np.zeros(0, np.float32))
            for i, prompt in enumerate(self.prompts(6))
        ]

    def batch(self, rows):
        """Return a batch of (prompt ids, completion ids, log mu) rows whose completions train."""
        width = max(len(prompt) + len(ids) for prompt, ids, _ in rows)
        tokens, mask = (
            torch.zeros(len(rows), width, dtype=torch.int64),
            torch.zeros(len(rows), width, dtype=torch.bool),
        )
        segments, mu = torch.zeros_like(tokens), torch.zeros(len(rows), width)
        for b, (prompt, ids, logprobs) in enumerate(rows):
            start, end = len(prompt), len(prompt) + len(ids)
            tokens[b, :end] = torch.from_numpy(np.concatenate((prompt, ids)).astype(np.int64))
            segments[b, :end], mask[b, start:end] = 1, True
            mu[b, start : start + len(logprobs)] = torch.from_numpy(logprobs)
        ones, index = mask.float(), torch.arange(len(rows))
        return TrainBatch(
            tokens_BT=tokens,
            segment_ids_BT=segments,
            loss_mask_BT=mask,
            rollout_logprobs_BT=mu,
            prox_logprobs_BT=None,
            advantages_BT=ones,
            positive_BT=mask,
            chunk_index_BT=torch.where(mask, index[:, None], -1),
            chunks=len(rows),
            trajectory_index_B=index,
            imitation_BT=torch.zeros_like(ones),
            policy_version_BT=torch.where(mask, 0, -1),
            normalizer=float(len(rows)),
            imitation_normalizer=1.0,
        )


def raise_all(batch, logprobs_BT):
    """The plain negative log-likelihood of everything that trains."""
    return LossOutput(-torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum() / batch.normalizer)


@pytest.fixture(scope="module", params=plugins.names("ale.engines"))
def engine(request, tmp_path_factory):
    name = request.param
    spec = plugins.load("ale.engines", name)
    if not isinstance(spec, EngineSpec):
        pytest.skip(f"{name} only samples: the suite needs an engine that learns, too")
    return Engine(spec, MODELS[name](tmp_path_factory.mktemp(name)) if name in MODELS else name)


def as_values(completions):
    return [(c.ids.tolist(), c.logprobs.tolist(), c.finish_reason, c.policy_version) for c in completions]


def test_the_spec_names_itself_and_refuses_unknown_options(engine):
    assert plugins.load("ale.engines", engine.spec.name) is engine.spec
    with pytest.raises(ValidationError):
        engine.spec.options(no_such_option=1)


def test_completions_keep_their_promises(engine):
    requests = engine.requests(7, max_tokens=4)
    completions = engine.inference(version=3).sample(requests)
    assert len(completions) == 7
    for completion in completions:
        assert 1 <= len(completion.ids) == len(completion.logprobs) <= 4
        assert completion.ids.dtype == np.int32
        assert completion.logprobs.dtype == np.float32
        assert (completion.logprobs <= 0).all()
        assert completion.policy_version == 3
        assert completion.finish_reason == "stop" or len(completion.ids) == 4


def test_a_trained_policy_stops_at_its_end_token(engine):
    train = engine.train()
    for _ in range(40):
        train.step(engine.batch(engine.expert_completions()), raise_all, lr=1e-2)
    requests = engine.requests(6, temperature=0.0, max_tokens=8)
    end = engine.template.encode_completion("left")[-1]
    completions = engine.inference(weights_of=train).sample(requests)
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert len(stopped) == len(completions)
    for completion in stopped:
        assert completion.ids[-1] == end
        assert end not in completion.ids[:-1]
        assert engine.template.decode(completion.ids) in engine.answers


def test_no_requests_give_no_completions(engine):
    assert engine.inference().sample([]) == []


def test_an_engine_that_stops_ends_with_the_token_that_completes_the_text(engine):
    for request in engine.requests(3, max_tokens=12):
        (whole,) = engine.inference().sample([request])
        stop = engine.template.decode(whole.ids[2:4], request.prompt_ids)
        asked = dataclasses.replace(request, stop=(stop or "x", "never said"))
        if not engine.spec.stops:
            with pytest.raises(PolicyError, match="cannot stop at a text"):
                engine.inference().sample([asked])
            continue
        (told,) = engine.inference().sample([asked])
        count = len(told.ids)
        assert told.ids.tolist() == whole.ids[:count].tolist()
        assert told.logprobs.tolist() == whole.logprobs[:count].tolist()
        if told.stopped_by:
            assert told.finish_reason == "stop"
            assert not told.closed
            assert stop in engine.template.decode(told.ids)
            assert stop not in engine.template.decode(told.ids[:-1])
        else:
            assert stop not in engine.template.decode(whole.ids)


def test_the_same_requests_give_the_same_completions_in_any_order(engine):
    inference, requests = engine.inference(weights_of=engine.learned()), engine.requests(9)
    first = as_values(inference.sample(requests))
    assert as_values(inference.sample(requests)) == first
    assert as_values(inference.sample(requests[::-1])) == first[::-1]
    other_instance = engine.inference(seed=8, weights_of=engine.learned())
    assert as_values(other_instance.sample(requests)) == first


def test_a_sample_does_not_depend_on_its_neighbours_or_the_batch_size(engine):
    train, requests = engine.learned(), engine.requests(9)
    together = engine.inference(weights_of=train).sample(requests)
    alone = [engine.inference(weights_of=train).sample([request])[0] for request in requests[:3]]
    small = engine.inference(weights_of=train, max_rows=2).sample(requests)
    for one, two in [*zip(together, small, strict=True), *zip(together[:3], alone, strict=True)]:
        assert one.ids.tolist() == two.ids.tolist()
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)


def test_another_seed_gives_another_sample(engine):
    requests = engine.requests(8, temperature=4.0)  # a trained engine is sure of its answer
    reseeded = [dataclasses.replace(request, seed=request.seed + 1) for request in requests]
    inference = engine.inference()
    one, two = inference.sample(requests), inference.sample(reseeded)
    assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(one, two, strict=True))


def test_temperature_zero_takes_the_most_likely_token(engine):
    train = engine.learned()
    inference = engine.inference(weights_of=train)
    requests = engine.requests(3, temperature=0.0, max_tokens=1)
    greedy = inference.sample(requests)
    for request, best in zip(requests, greedy, strict=True):
        params = SamplingParams(max_tokens=1)
        others = [dataclasses.replace(request, seed=s, params=params) for s in range(200)]
        assert best.logprobs[0] >= max(c.logprobs[0] for c in inference.sample(others)) - 1e-5


def test_the_context_bounds_the_completion(engine):
    prompt = np.resize(engine.prompts(1)[0], engine.options.max_context - 3)
    short = engine.prompts(1)[0]
    params = SamplingParams(max_tokens=40)
    completions = engine.inference().sample(
        [SampleRequest("long", 0, prompt, params, 4), SampleRequest("short", 0, short, params, 5)]
    )
    assert len(completions[0].ids) <= 3
    assert completions[0].finish_reason == "stop" or len(completions[0].ids) == 3


@pytest.mark.parametrize("length", [0, 160])
def test_a_prompt_that_cannot_be_continued_is_refused(engine, length):
    prompt = np.resize(engine.prompts(1)[0], length)
    with pytest.raises(PolicyError, match="got"):
        engine.inference().sample([SampleRequest("r", 0, prompt, SamplingParams(), 1)])


def test_asking_for_no_token_is_refused(engine):
    with pytest.raises(PolicyError, match="max_tokens"):
        engine.inference().sample(engine.requests(1, max_tokens=0))


@pytest.mark.parametrize("max_tokens", [1, 6])
def test_train_and_inference_agree_after_a_weight_sync(engine, max_tokens):
    train = engine.learned()
    requests = engine.requests(24, max_tokens=max_tokens)
    completions = engine.inference(weights_of=train).sample(requests)
    rows = [(r.prompt_ids, c.ids, c.logprobs) for r, c in zip(requests, completions, strict=True)]
    batch = engine.batch(rows)
    logprobs = train.logprobs(batch)
    assert float(logprobs[batch.loss_mask_BT].std()) > 0.01
    assert float((logprobs - batch.rollout_logprobs_BT).abs().max()) < 1e-4


def test_stale_weights_do_not_agree(engine):
    train = engine.learned()
    inference = engine.inference(weights_of=train)
    for _ in range(3):
        train.step(engine.batch(engine.expert_completions()), raise_all, lr=1e-2)
    requests = engine.requests(8)
    rows = [
        (r.prompt_ids, c.ids, c.logprobs) for r, c in zip(requests, inference.sample(requests), strict=True)
    ]
    batch = engine.batch(rows)
    assert float((train.logprobs(batch) - batch.rollout_logprobs_BT).abs().max()) > 1e-2


def test_the_step_sees_the_logprobs_that_logprobs_returns(engine):
    train, batch = engine.learned(), engine.batch(engine.expert_completions())
    expected, seen = train.logprobs(batch), []

    def spy(part, logprobs_BT):
        seen.append((part.trajectory_index_B, logprobs_BT.detach().clone()))
        return raise_all(part, logprobs_BT)

    train.step(batch, spy, lr=1e-3)
    for rows, logprobs_BT in seen:
        assert torch.equal(logprobs_BT, expected[rows, : logprobs_BT.shape[1]])


def test_weights_that_cannot_be_written_to_are_taken(engine):
    weights = {name: value.copy() for name, value in engine.train().weights().items()}
    for value in weights.values():
        value.flags.writeable = False
    inference = engine.inference(version=1)
    inference.load(weights, 2)
    assert inference.sample(engine.requests(1))[0].policy_version == 2


def test_weights_of_another_model_are_refused_and_nothing_changes(engine):
    inference, requests = engine.inference(), engine.requests(3)
    before = as_values(inference.sample(requests))
    weights = {name: value + 1.0 for name, value in engine.train().weights().items()}
    last = list(weights)[-1]
    with pytest.raises(InvalidArgument, match="shape"):
        inference.load({**weights, last: np.zeros((1, 2, 3), np.float32)}, 2)
    with pytest.raises(InvalidArgument, match="names differ"):
        inference.load({**weights, "extra": weights[last]}, 2)
    assert as_values(inference.sample(requests)) == before


def test_the_same_seed_and_steps_give_the_same_bits(engine):
    one, two = engine.learned().weights(), engine.learned().weights()
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_resumed_engine_continues_bit_for_bit(engine, tmp_path):
    train, batch = engine.learned(), engine.batch(engine.expert_completions())
    train.save(tmp_path)
    again = engine.train(seed=5)
    again.load(tmp_path)
    assert again.step(batch, raise_all, lr=1e-3) == train.step(batch, raise_all, lr=1e-3)
    assert all(np.array_equal(value, again.weights()[name]) for name, value in train.weights().items())


def test_another_versions_weights_can_be_asked_and_nothing_changes(engine):
    train, batch = engine.learned(), engine.batch(engine.expert_completions())
    before, own_BT = {name: value.copy() for name, value in train.weights().items()}, train.logprobs(batch)
    other = engine.train()
    found_BT = train.logprobs(batch, other.weights())
    assert torch.equal(found_BT, other.logprobs(batch))
    assert not torch.equal(found_BT, own_BT)
    with pytest.raises(InvalidArgument, match="names differ"):
        train.logprobs(batch, {"extra": before[next(iter(before))]})
    assert all(np.array_equal(value, before[name]) for name, value in train.weights().items())
    assert torch.equal(train.logprobs(batch), own_BT)


def test_a_broken_loss_is_refused_and_nothing_changes(engine):
    train, batch = engine.learned(), engine.batch(engine.expert_completions())
    before = {name: value.copy() for name, value in train.weights().items()}
    with pytest.raises(FloatingPointError):
        train.step(batch, lambda part, lp: LossOutput(lp.sum() * float("nan")), lr=1e-2)
    assert all(np.array_equal(value, before[name]) for name, value in train.weights().items())


def test_an_exported_model_is_the_same_model(engine, tmp_path):
    train, requests = engine.learned(), engine.requests(5)
    expected = engine.inference(weights_of=train).sample(requests)
    train.export(tmp_path)
    exported = Engine(engine.spec, str(tmp_path))
    assert [p.tolist() for p in exported.prompts(3)] == [p.tolist() for p in engine.prompts(3)]
    assert as_values(exported.inference().sample(requests)) == as_values(expected)


def test_a_missing_model_is_one_clear_error(engine, tmp_path):
    missing = str(tmp_path / "none")
    for build in (
        lambda: engine.spec.template(missing, engine.options),
        lambda: engine.spec.inference(missing, engine.options, 0),
        lambda: engine.spec.train(missing, engine.options, 0, OptimOptions()),
    ):
        with pytest.raises(InvalidArgument, match=f"Expected '(tiny|coder|{engine.spec.name})'"):
            build()


def test_the_template_continues_a_conversation_as_it_would_render_it(engine):
    template = engine.template
    first, second = Message("user", GRIDS[0]), Message("user", GRIDS[1])
    continued = np.concatenate(
        (template.open([first]), template.encode_completion("up"), template.extend([second], closed=True))
    )
    whole = template.open([first, Message("assistant", "up"), second])
    assert continued.tolist() == whole.tolist()
    assert template.decode(template.encode_completion("up")) == "up"
    assert template.max_context == engine.options.max_context


# -- a critic -------------------------------------------------------------------------------------------------

RETURNS = (0.0, 1.0, -0.5)
"""By prompt, so that a critic can know them."""


def judged_batch(engine, *, scale=1.0):
    """Return a batch of which a critic is to say `RETURNS` where each row's answer begins."""
    batch = engine.batch(engine.expert_completions())
    opens_BT = batch.loss_mask_BT & (batch.loss_mask_BT.cumsum(1) == 1)
    returns_B = scale * torch.tensor(RETURNS).repeat(2)[:, None]
    return dataclasses.replace(
        batch,
        opens_turn_BT=torch.where(opens_BT, 0, -1),
        returns_BT=torch.where(opens_BT, returns_B, 0.0),
        old_values_BT=torch.zeros(opens_BT.shape),
        counts=Counts(len(opens_BT), int(batch.loss_mask_BT.sum()), len(opens_BT)),
    )


def value_loss(batch, logprobs_BT):
    return LossOutput(critic_loss(batch, float("inf"))[0])


def both_losses(batch, logprobs_BT):
    return LossOutput(raise_all(batch, logprobs_BT).loss + value_loss(batch, logprobs_BT).loss)


def with_critic(engine, **optim):
    train = engine.train(**optim)
    train.add_critic(lr=1e-2, seed=3)
    return train


def bits(train):
    return {name: value.tobytes() for name, value in train.weights().items()}


def test_a_critic_begins_at_zero_learns_the_returns_and_never_moves_the_policy(engine):
    train, batch = with_critic(engine), judged_batch(engine)
    assert isinstance(train, LearnsValues)
    states = dataclasses.replace(batch, loss_mask_BT=batch.opens_turn_BT >= 0)
    before = bits(train)
    assert not train.values(states).any()
    for _ in range(80):
        metrics = train.step(batch, value_loss, lr=1e-2)
    assert metrics["critic/grad_norm"] > 0 == metrics["grad_norm"]
    torch.testing.assert_close(train.values(states), batch.returns_BT, atol=0.1, rtol=0)
    assert bits(train) == before == bits(engine.train())


def test_a_critic_leaves_the_policys_update_as_it_is(engine):
    """A huge error of the critic takes nothing of the policy's share of the clipped gradient, nor of its rate."""
    train, alone = with_critic(engine), engine.train()
    metrics = train.step(judged_batch(engine, scale=1e4), both_losses, lr=1e-3)
    expected = alone.step(judged_batch(engine), raise_all, lr=1e-3)
    assert metrics["grad_norm"] == expected["grad_norm"]
    assert metrics["critic/grad_norm"] > 1
    assert bits(train) == bits(alone)


def test_the_step_sees_the_values_that_values_returns(engine):
    train, batch = with_critic(engine, microbatch_tokens=64), judged_batch(engine)
    for _ in range(5):
        train.step(batch, value_loss, lr=1e-3)
    states = dataclasses.replace(batch, loss_mask_BT=batch.opens_turn_BT >= 0)
    expected, rows = train.values(states), []

    def spy(part, logprobs_BT):
        opens_BT = part.opens_turn_BT >= 0
        own_BT = expected[part.trajectory_index_B, : opens_BT.shape[1]]
        torch.testing.assert_close(part.values_BT.detach()[opens_BT], own_BT[opens_BT])
        rows.append(len(opens_BT))
        return value_loss(part, logprobs_BT)

    train.step(batch, spy, lr=1e-3)
    assert sum(rows) == len(batch.tokens_BT)
    assert expected.any()


def test_a_resumed_critic_continues_bit_for_bit(engine, tmp_path):
    train, batch = with_critic(engine), judged_batch(engine)
    for _ in range(3):
        train.step(batch, both_losses, lr=1e-3)
    train.save(tmp_path)
    again = engine.train(seed=5)
    again.add_critic(lr=1e-2, seed=8)
    again.load(tmp_path)
    for _ in range(2):
        assert again.step(batch, both_losses, lr=1e-3) == train.step(batch, both_losses, lr=1e-3)
    assert torch.equal(again.values(batch), train.values(batch))
    with pytest.raises(InvalidArgument, match="another model"):
        engine.train().load(tmp_path)


def test_a_critic_that_is_not_finite_is_refused(engine):
    train, batch = with_critic(engine), judged_batch(engine, scale=float("inf"))
    before = bits(train)
    with pytest.raises(FloatingPointError, match="not applied"):
        train.step(batch, both_losses, lr=1e-3)
    assert bits(train) == before


def test_values_without_a_critic_are_a_clear_error(engine):
    with pytest.raises(ValueError, match="call add_critic first"):
        engine.train().values(judged_batch(engine))
