"""The hf sampler on a CUDA device: exact log-probabilities, captured steps, sessions, weights in half precision.

`python -m pytest -c tests/gpu/pytest.ini tests/gpu` needs torch, transformers and numpy only.
"""

import asyncio
import copy

import numpy as np
import pytest

from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.types import SamplingParams

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
transformers = pytest.importorskip("transformers", reason="pip install transformers")

from trainer.protocols.token_sampler import Sampled  # noqa: E402
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch  # noqa: E402
from trainer.samplers.hf.ragged import RaggedModel  # noqa: E402
from trainer.samplers.proof import arrival_fault, digests, named_tensors  # noqa: E402
from trainer.samplers.threaded import ThreadedSampler  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here: run it where one is"),
]
VOCABULARY = 512


def random_model(dtype=None, seed=0):
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    return transformers.AutoModelForCausalLM.from_config(config).to("cuda", dtype or torch.float32).eval()


def batch_over(model, *, graphs=True, **bounds):
    ragged = RaggedModel(copy.deepcopy(model), max_context=1024)
    return ContinuousBatch(ragged, end_id=-1, bounds=Bounds(**bounds), graphs=graphs)


def request(ids, name, *, answer=24, seed=1, **params):
    how = SamplingParams(max_tokens=answer, **params)
    return SampleRequest(name, 0, np.asarray(ids, np.int32), how, seed)


def ids_of(count, seed):
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).astype(np.int32)


def run(batch, *requests):
    tickets, outcomes = [batch.submit(one) for one in requests], {}
    while len(outcomes) < len(tickets):
        outcomes.update(batch.step())
    return [outcomes[ticket] for ticket in tickets]


@torch.no_grad()
def error_of(model, one, sampled):
    tokens = np.concatenate((one.prompt_ids, sampled.ids)).astype(np.int64)
    tokens = torch.from_numpy(tokens).to("cuda")
    logprobs = torch.log_softmax(model(input_ids=tokens[None], use_cache=False).logits[0, :-1].float(), -1)
    expected = logprobs.gather(1, tokens[1:, None])[-len(sampled.ids) :, 0].cpu().numpy()
    return float(np.abs(expected - sampled.logprobs).max())


@pytest.mark.parametrize("graphs", [True, False], ids=["captured", "eager"])
def test_ragged_rows_have_the_log_probabilities_of_full_forwards(graphs):
    model = random_model()
    batch = batch_over(model, graphs=graphs, rows=4)
    requests = [request(ids_of(n, n), f"r{n}", seed=n) for n in (9, 200, 1, 70, 33, 64)]
    for one, sampled in zip(requests, run(batch, *requests), strict=True):
        assert error_of(model, one, sampled) < 1e-5
    assert batch.decoder.graphs == graphs


def test_captured_steps_draw_what_eager_ones_draw():
    model = random_model()
    requests = [request(ids_of(n, n), f"r{n}", seed=n, top_p=0.9 if n % 2 else 1.0) for n in (9, 20, 31)]
    one, two = (run(batch_over(model, graphs=graphs), *requests) for graphs in (True, False))
    assert [each.ids.tolist() for each in one] == [each.ids.tolist() for each in two]


def test_steps_are_captured_again_when_the_cache_has_grown():
    model = random_model()
    batch = batch_over(model, rows=4)
    shapes = set()
    for length in (5, 400, 900):
        one = request(ids_of(length, length), f"r{length}")
        (sampled,) = run(batch, one)
        assert error_of(model, one, sampled) < 1e-5
        shapes.add(batch.decoder._cache.data.shape)
    assert len(shapes) > 1
    assert batch.decoder.graphs
    torch.randn(
        4, device="cuda"
    )  # a capture that was begun and broken off would leave the generator unusable


def test_the_device_draws_what_the_host_draws():
    model = random_model()
    requests = [request(ids_of(20, n), f"r{n}", seed=n) for n in range(4)]
    on_host = batch_over(model.cpu(), rows=4)
    expected = run(on_host, *requests)
    found = run(batch_over(model.cuda(), rows=4), *requests)
    same = [one.ids.tolist() == two.ids.tolist() for one, two in zip(expected, found, strict=True)]
    assert sum(same) >= 3  # rounding may move one draw over a border


def test_a_growing_chat_is_remembered_and_exact():
    model = random_model()
    batch, history, known = batch_over(model), ids_of(300, 0), 0
    for turn in range(3):
        one = request(history, "chat", seed=turn)
        (sampled,) = run(batch, one)
        assert sampled.cached_tokens == known
        assert error_of(model, one, sampled) < 1e-5
        known = len(history) + len(sampled.ids) - 1
        history = np.concatenate((history, sampled.ids, ids_of(30, turn)))


def test_a_row_that_is_not_finite_fails_alone():
    model = random_model()
    with torch.no_grad():
        model.model.embed_tokens.weight[3] = torch.nan
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)
    safe = [np.where(ids_of(n, n) == 3, 4, ids_of(n, n)) for n in (40, 12)]
    batch = batch_over(model)
    requests = [request(safe[0], "a", answer=1), request([3], "bad"), request(safe[1], "b", answer=1)]
    good, failed, other = run(batch, *requests)
    assert isinstance(failed, PolicyError)
    assert isinstance(good, Sampled)
    assert isinstance(other, Sampled)


def test_half_precision_weights_arrive_by_proof_and_a_changed_one_is_named():
    model, other = random_model(torch.bfloat16), random_model(torch.bfloat16, 1)
    batch = batch_over(model)
    weights = {name: value.detach().float().cpu().numpy() for name, value in other.named_parameters()}
    sent = digests(weights, dtype=torch.bfloat16)
    batch.load(weights, 2)
    arrived = digests({n: t for n, t in named_tensors(batch.model.model).items() if n in sent})
    assert arrival_fault(sent, arrived) is None
    broken = list(weights)[3]
    with torch.no_grad():
        named_tensors(batch.model.model)[broken].view(-1)[-1] += 1
    arrived = digests({n: t for n, t in named_tensors(batch.model.model).items() if n in sent})
    assert arrival_fault(sent, arrived) == broken


def test_the_asynchronous_sampler_serves_many_at_once():
    batch = batch_over(random_model(torch.bfloat16), rows=16)
    sampler = ThreadedSampler(batch)

    async def serve():
        try:
            return await asyncio.gather(
                *(sampler.sample(request(ids_of(5 + n, n), f"r{n}", seed=n)) for n in range(40))
            )
        finally:
            await sampler.close()

    found = asyncio.run(serve())
    assert {len(sampled.ids) for sampled in found} == {24}
