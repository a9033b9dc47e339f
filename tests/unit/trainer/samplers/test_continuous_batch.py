"""Continuous batching over ragged caches: exact log-probabilities, sessions remembered, rows that join, leave and fail."""

import numpy as np
import pytest
import torch
import transformers
from random_models import (
    ARCHITECTURES,
    CONTEXT,
    END,
    KV,
    SIZE,
    batch_over,
    full_forward,
    ids_of,
    random_model,
    request,
    run,
    weights_of,
)

from agent_runtime.policy import PolicyError
from rock_env.errors import InvalidArgument
from trainer.protocols.token_sampler import Aborted, Sampled
from trainer.samplers.drawing import uniforms_on_device
from trainer.samplers.hf.ragged import RaggedModel
from trainer.samplers.sampling import uniforms


def assert_exact(model, one, sampled):
    found = full_forward(model, one.prompt_ids, sampled.ids)
    np.testing.assert_allclose(sampled.logprobs, found, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_log_probabilities_over_ragged_rows_are_those_of_a_full_forward(name):
    model = random_model(name)
    batch = batch_over(model, rows=3)
    requests = [request(ids_of(n, n), f"r{n}", seed=n) for n in (12, 3, 70, 1, 7, 30)]
    for one, sampled in zip(requests, run(batch, *requests), strict=True):
        assert_exact(model, one, sampled)


@pytest.mark.parametrize("name", ["llama", "mistral window", "gpt2"])
def test_a_growing_chat_reads_only_what_is_new_and_stays_exact(name):
    model = random_model(name)
    batch, history, known = batch_over(model), ids_of(40), 0
    for turn in range(3):
        one = request(history, turn=turn, seed=turn)
        (sampled,) = run(batch, one)
        assert sampled.cached_tokens == known
        assert_exact(model, one, sampled)
        known = len(history) + len(sampled.ids) - 1  # the last sampled id was never read
        history = np.concatenate((history, sampled.ids, ids_of(9, turn)))
    assert len(batch.memory) == 1  # a turn takes the place of the one it continues


def test_a_batch_that_sleeps_holds_no_keys_and_values_and_goes_on_exactly():
    model = random_model("llama")
    batch, one = batch_over(model), request(ids_of(30), "a", seed=3)
    run(batch, request(ids_of(20), "b"))
    assert batch.memory.tokens
    ticket = batch.submit(one)
    for _ in range(3):
        assert batch.step() == []
    batch.sleep()
    assert (batch.memory.tokens, batch._cache.slots, batch._cache.room) == (0, 0, 0)
    batch.wake()
    ended = []
    while not ended:
        ended = batch.step()
    assert ended[0][0] == ticket
    assert_exact(model, one, ended[0][1])


def test_rollouts_of_one_prompt_read_it_once():
    model = random_model("llama")
    batch, prompt = batch_over(model), ids_of(50)
    requests = [request(prompt, f"r{i}", seed=i) for i in range(4)]
    found = run(batch, *requests)
    assert [sampled.cached_tokens for sampled in found] == [0, 49, 49, 49]
    for one, sampled in zip(requests, found, strict=True):
        assert_exact(model, one, sampled)


def test_what_is_remembered_is_bounded_and_the_oldest_leaves():
    batch = batch_over(random_model("llama"), remembered_tokens=100)
    for number in range(4):
        run(batch, request(ids_of(40, number), f"s{number}", max_tokens=1))
    assert (len(batch.memory), batch.memory.tokens) == (2, 80)
    assert run(batch, request(ids_of(40, 0), "s0"))[0].cached_tokens == 0
    assert run(batch, request(ids_of(40, 3), "s3"))[0].cached_tokens == 39


def test_batches_of_a_run_remember_each_rollouts_own_turns_only():
    model, prompt = random_model("llama"), ids_of(50)
    batch = batch_over(model)
    first, other = batch.sample_turns([request(prompt, "mine", max_tokens=1)]), batch.memory.tokens
    assert (batch.memory.find(prompt, "mine")[0], batch.memory.find(prompt, "other")) == (50, (0, None))
    batch.sample_turns([request(prompt, "other", max_tokens=1)])
    assert batch.memory.tokens == 2 * other
    again = batch.sample_turns([request(prompt, "mine", max_tokens=1)])
    assert [one.ids.tolist() for one in again] == [one.ids.tolist() for one in first]
    assert batch.sample([request(prompt, "mine", max_tokens=1)])[0].ids.tolist() == first[0].ids.tolist()


def test_a_batch_with_a_request_that_is_refused_leaves_nothing_waiting():
    batch = batch_over(random_model("llama"))
    with pytest.raises(PolicyError, match="does not know"):
        batch.sample([request(ids_of(5), "a"), request([1000], "b")])
    assert not batch.busy
    assert len(batch.sample([request(ids_of(5), "a")])) == 1


def test_a_batch_that_remembers_nothing_gives_the_same_answers():
    model, prompt = random_model("llama"), ids_of(30)
    one, other = batch_over(model), batch_over(model, remembered_tokens=0)
    requests = [request(prompt, turn=turn, seed=turn) for turn in range(3)]
    for each in requests:
        (kept,), (fresh,) = run(one, each), run(other, each)
        assert kept.ids.tolist() == fresh.ids.tolist()
        assert fresh.cached_tokens == 0


def test_a_short_request_is_answered_while_a_long_one_runs_and_a_long_prompt_is_read():
    batch = batch_over(random_model("llama"), prompt_tokens=8)
    batch.submit(request(ids_of(10), "long", max_tokens=100, seed=3))
    batch.step()
    batch.step()
    reading = batch.submit(request(ids_of(120, 1), "reading", max_tokens=1))
    short = batch.submit(request(ids_of(2, 2), "short", max_tokens=2))
    ended = []
    while reading not in ended:
        ended += [ticket for ticket, _ in batch.step()]
    assert ended.index(short) < ended.index(reading)


def test_answers_end_at_the_end_token_at_a_text_and_at_the_context():
    model = random_model("llama")
    greedy = {"temperature": 0.0, "max_tokens": 30}
    (whole,) = run(batch_over(model), request(ids_of(9), **greedy))
    batch = batch_over(model, text=lambda ids: "".join(chr(96 + int(i)) for i in ids))
    text = "".join(chr(96 + int(i)) for i in whole.ids[2:4])
    (told,) = run(batch, request(ids_of(9), stop=(text,), **greedy))
    assert (told.stopped_by, told.finish_reason) == (text, "stop")
    assert told.ids.tolist() == whole.ids[: len(told.ids)].tolist()
    (bounded,) = run(batch_over(model), request(ids_of(CONTEXT - 2), seed=4))
    assert len(bounded.ids) <= 2
    assert (bounded.ids[-1] == END) == (bounded.finish_reason == "stop")


def test_a_row_that_is_not_finite_fails_alone_and_leaves_nothing_behind():
    model, poison = random_model("llama"), 95
    with torch.no_grad():
        model.model.embed_tokens.weight[poison] = torch.nan
    batch = batch_over(model, rows=3)
    safe = [ids_of(n, n) for n in (20, 6)]
    safe = [np.where(ids == poison, 7, ids) for ids in safe]
    broken = request([*safe[0][:10], poison], "broken")
    good, failed, other = run(
        batch, request(safe[0], "a", max_tokens=1), broken, request(safe[1], "b", max_tokens=1)
    )
    assert isinstance(failed, PolicyError)
    assert "'broken'" in str(failed)
    assert isinstance(good, Sampled)
    assert isinstance(other, Sampled)
    again = run(batch, *(request(ids, f"c{n}", max_tokens=1) for n, ids in enumerate([*safe, safe[0][::-1]])))
    assert all(isinstance(one, Sampled) for one in again)


def test_an_aborted_row_leaves_and_the_last_row_takes_its_slot():
    model = random_model("llama")
    batch = batch_over(model)
    requests = [request(ids_of(n, n), f"r{n}", max_tokens=20, seed=n) for n in (20, 5, 11)]
    tickets = [batch.submit(one) for one in requests]
    outcomes = {}
    for _ in range(3):
        outcomes.update(batch.step())
    assert batch.abort(tickets[0])
    assert not batch.abort(tickets[0])
    while len(outcomes) < 3:
        outcomes.update(batch.step())
    assert isinstance(outcomes[tickets[0]], Aborted)
    for one, ticket in zip(requests[1:], tickets[1:], strict=True):
        assert_exact(model, one, outcomes[ticket])


def test_tokens_on_both_sides_of_new_weights_have_each_versions_own_log_probabilities():
    old, new = random_model("llama"), random_model("llama", 1)
    one = request(ids_of(20), max_tokens=40, seed=2)
    (sampled,) = run(batch_over(old), one, load=(4, weights_of(new), 9))
    assert [span.version for span in sampled.spans] == [0, 9]
    first, second = sampled.spans
    assert (first.start, first.end, second.end) == (0, second.start, len(sampled.ids))
    assert first.end < len(sampled.ids)
    for model, span in ((old, first), (new, second)):
        found = full_forward(model, one.prompt_ids, sampled.ids)[span.start : span.end]
        np.testing.assert_allclose(sampled.logprobs[span.start : span.end], found, atol=1e-5)
    spans = ((0, first.end), (9, len(sampled.ids) - first.end))
    assert sampled.completion().policy_version == spans


def test_new_weights_forget_what_older_ones_computed():
    batch = batch_over(random_model("llama"))
    run(batch, request(ids_of(30)))
    batch.load(weights_of(random_model("llama", 1)), 2)
    assert run(batch, request(ids_of(30)))[0].cached_tokens == 0


def test_more_requests_than_there_is_room_for_wait_their_turn():
    model = random_model("llama")
    batch = batch_over(model, running_tokens=192)
    requests = [request(ids_of(n, n), f"r{n}", seed=n, max_tokens=9) for n in (50, 4, 100, 51, 60, 5)]
    for one, sampled in zip(requests, run(batch, *requests), strict=True):
        assert_exact(model, one, sampled)


def test_a_request_that_can_never_have_room_is_refused():
    batch = batch_over(random_model("llama"), running_tokens=64)
    with pytest.raises(PolicyError, match="needs room for 72 tokens, the sampler has 64"):
        batch.submit(request(ids_of(60)))


@pytest.mark.parametrize("bad", [-1, 96])
def test_an_id_that_the_model_does_not_know_is_refused(bad):
    with pytest.raises(PolicyError, match="does not know"):
        batch_over(random_model("llama")).submit(request([7, bad]))


def test_a_model_that_transforms_its_logits_is_refused():
    config = transformers.Gemma2Config(**SIZE, **KV, head_dim=8, final_logit_softcapping=0.5)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(InvalidArgument, match="differ by"):
        RaggedModel(model, max_context=64)


def test_random_numbers_on_the_device_are_those_of_the_host():
    seeds = np.array([0, 1, 2**63, 2**64 - 1, 12345678901234567890], np.uint64)
    for index in (0, 1, 77, 100_000):
        found = uniforms_on_device(torch.from_numpy(seeds.view(np.int64)), torch.tensor(index))
        assert found.numpy().tolist() == uniforms(seeds, index).tolist()
