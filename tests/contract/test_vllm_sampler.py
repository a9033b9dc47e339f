"""What vLLM computes is what the learner's model computes, with the weights that arrived: names, ids, log-probabilities.

Needs vLLM in the environment: scripts/vllm_cpu.sh makes one with its CPU build. Everything here is float32 on the processor.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_cases import rows_of, weighted_likelihood
from random_llama import random_llama

from agent_runtime.policy import Message, SampleRequest
from agent_runtime.types import SamplingParams
from rock_env.errors import InvalidArgument
from trainer.errors import Halted
from trainer.models import hf
from trainer.models.vllm import SAMPLER, VllmOptions
from trainer.protocols.engines import OptimOptions
from trainer.protocols.token_sampler import Aborted, Sampled
from trainer.samplers.arrival import check_arrival
from trainer.samplers.proof import digests, precisions
from trainer.samplers.vllm.batch import VllmBatch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not here: scripts/vllm_cpu.sh makes an environment with it",
)

CONTEXT = 256
KEY = "model.layers.0.self_attn.k_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
Weights = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return random_llama(tmp_path_factory.mktemp("tied"), context=CONTEXT, head=32, tied=True)


@pytest.fixture(scope="module")
def batch(folder: str) -> Iterator[VllmBatch]:
    made = SAMPLER.inference(folder, VllmOptions(cache_bytes=1 << 25, max_rows=8), 0)
    assert isinstance(made, VllmBatch)
    yield made
    made.close()


@pytest.fixture(scope="module")
def model(folder: str) -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder)


def weights_of(model: Any, scale: float = 1.0) -> Weights:
    return {name: value.detach().numpy() * np.float32(scale) for name, value in model.named_parameters()}


def request(
    ids: list[int], name: str = "r", seed: int = 1, stop: tuple[str, ...] = (), **params: Any
) -> SampleRequest:
    return SampleRequest(
        name, 0, np.array(ids, np.int32), SamplingParams(**{"max_tokens": 6, **params}), seed, stop
    )


def answered(batch: VllmBatch, wanted: SampleRequest) -> Sampled:
    ticket = batch.submit(wanted)
    while True:
        for ended, outcome in batch.step():
            if ended == ticket:
                assert isinstance(outcome, Sampled), outcome
                return outcome


@torch.no_grad()
def expected(
    model: Any, weights: Weights, ids: list[int], answer: np.ndarray, temperature: float = 1.0
) -> Any:
    """Return log pi of each token of the answer by a full forward of Transformers."""
    for name, value in model.named_parameters():
        value.copy_(torch.from_numpy(weights[name]))
    logits = model(torch.tensor([[*ids, *answer.tolist()]])).logits[0, len(ids) - 1 : -1].float()
    found = torch.log_softmax(logits / temperature, -1)
    return found.gather(1, torch.from_numpy(answer.astype(np.int64))[:, None])[:, 0].numpy()


PROMPT = list(range(1, 70))


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_log_probabilities_are_those_of_the_distribution_sampled_from(
    batch: VllmBatch, model: Any, temperature: float
) -> None:
    weights = weights_of(model)
    batch.load(weights, 1)
    found = answered(batch, request(PROMPT, temperature=temperature, max_tokens=12))
    wanted = expected(model, weights, PROMPT, found.ids, temperature or 1.0)
    np.testing.assert_allclose(found.logprobs, wanted, atol=1e-4)


def test_a_tied_output_layer_follows_new_weights(batch: VllmBatch, model: Any) -> None:
    """vLLM's CPU build would keep the packed copy that it made of the old ones, 2 nats away."""
    old = weights_of(model)
    new = {**old, EMBEDDING: old[EMBEDDING][::-1].copy()}
    batch.load(old, 1)
    before = answered(batch, request(PROMPT))
    batch.load(new, 2)
    after = answered(batch, request(PROMPT))
    assert np.abs(expected(model, new, PROMPT, before.ids) - before.logprobs).max() > 0.1
    np.testing.assert_allclose(after.logprobs, expected(model, new, PROMPT, after.ids), atol=1e-4)
    expected(model, old, PROMPT, before.ids)


def test_adapters_arrive_merged_and_sample_as_the_learner_says(batch: VllmBatch, folder: str) -> None:
    pytest.importorskip("peft", reason="needs peft: pip install 'ale-rl[lora]'")
    train = hf.ENGINE.train(folder, hf.HFOptions(lora_rank=4), 0, OptimOptions())
    rows = rows_of([24, 17, 30], vocabulary=256)
    before = None
    for version in (1, 2):
        for _ in range(3):
            train.step(rows, weighted_likelihood, lr=1e-2)
        weights = train.weights()
        batch.load(weights, version)
        arrived = batch.arrived()
        check_arrival(digests(weights, dtype=precisions(arrived.digests)), [arrived], version)
        assert before is None or arrived.digests[KEY] != before
        before = arrived.digests[KEY]
        found = answered(batch, request(PROMPT, max_tokens=12))
        row = torch.tensor([[*PROMPT, *found.ids.tolist()]])
        with torch.no_grad():
            hidden = train.net.hidden_at(row, torch.arange(row.shape[1])[None])[0]  # type: ignore[attr-defined]
            scores = torch.log_softmax(train.net.logits(hidden), -1)[len(PROMPT) - 1 : -1]  # type: ignore[attr-defined]
        learned = scores.gather(1, torch.from_numpy(found.ids.astype(np.int64))[:, None])[:, 0]
        np.testing.assert_allclose(found.logprobs, learned.numpy(), atol=1e-4)


def test_weights_that_come_in_the_middle_of_an_answer_sample_the_rest_of_it(
    batch: VllmBatch, model: Any
) -> None:
    old, new = weights_of(model), weights_of(model, 0.9)
    batch.load(old, 3)
    ticket = batch.submit(request(PROMPT, max_tokens=10))
    for _ in range(4):
        assert batch.step() == []
    batch.load(new, 4)
    ended: list[Any] = []
    while not ended:
        ended = batch.step()
    (told, found), *_ = ended
    assert told == ticket
    (first, second) = found.spans
    assert (first.version, first.start, second.version, second.end) == (3, 0, 4, len(found.ids))
    assert first.end == second.start > 0
    for span, weights in ((first, old), (second, new)):
        own = expected(model, weights, PROMPT, found.ids)[span.start : span.end]
        np.testing.assert_allclose(found.logprobs[span.start : span.end], own, atol=1e-4)
    expected(model, old, PROMPT, found.ids)


def test_cached_tokens_are_whole_blocks_of_what_was_read_and_none_after_new_weights(
    batch: VllmBatch, model: Any
) -> None:
    batch.load(weights_of(model), 1)
    first = answered(batch, request(PROMPT))
    assert answered(batch, request([*PROMPT, *first.ids.tolist(), 5, 6])).cached_tokens == 64
    assert answered(batch, request(PROMPT[:40])).cached_tokens == 32
    assert answered(batch, request([2, *PROMPT])).cached_tokens == 0
    batch.load(weights_of(model), 2)
    assert answered(batch, request(PROMPT)).cached_tokens == 0


def test_answers_end_at_the_end_token_and_at_texts(batch: VllmBatch, model: Any, folder: str) -> None:
    batch.load(weights_of(model), 1)
    template = hf.chat_template(folder, hf.HFOptions())
    found = [answered(batch, request(PROMPT, seed=seed, max_tokens=180)) for seed in range(12)]
    stopped = [each for each in found if each.finish_reason == "stop"]
    assert stopped, "no answer ended by itself: the test shows nothing"
    assert all(each.ids[-1] == template.end_id and template.end_id not in each.ids[:-1] for each in stopped)
    whole = template.decode(stopped[0].ids[:-1])
    at = found.index(stopped[0])
    text = answered(batch, request(PROMPT, seed=at, max_tokens=180, stop=(whole[3:5],)))
    assert (text.finish_reason, text.stopped_by) == ("stop", whole[3:5])
    assert text.ids.tolist() == stopped[0].ids[: len(text.ids)].tolist()
    assert whole[3:5] in template.decode(text.ids)


def test_no_text_is_ever_turned_into_ids(batch: VllmBatch, model: Any, folder: str, monkeypatch: Any) -> None:
    template = hf.chat_template(folder, hf.HFOptions())
    prompt = template.open([Message("user", "left")]).tolist()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a text was encoded")

    from transformers import PreTrainedTokenizerFast

    for name in ("__call__", "encode", "_encode_plus", "apply_chat_template", "tokenize"):
        monkeypatch.setattr(PreTrainedTokenizerFast, name, refuse)
    batch.load(weights_of(model), 1)
    assert len(answered(batch, request(prompt, stop=("@@",))).ids) >= 1


def test_an_aborted_request_leaves_the_others(batch: VllmBatch, model: Any) -> None:
    batch.load(weights_of(model), 1)
    gone, kept = batch.submit(request(PROMPT, "gone")), batch.submit(request(PROMPT, "kept"))
    batch.step()
    assert batch.abort(gone)
    assert not batch.abort(gone)
    found: dict[int, Any] = {}
    while len(found) < 2:
        found.update(batch.step())
    assert isinstance(found[gone], Aborted)
    assert isinstance(found[kept], Sampled)
    assert not batch.busy


def test_what_arrived_is_proved_tensor_by_tensor(batch: VllmBatch, model: Any) -> None:
    weights = weights_of(model)
    batch.load(weights, 5)
    found = batch.arrived()
    sent = digests(weights, dtype=precisions(found.digests))
    assert found.digests["lm_head.weight"] == found.digests[EMBEDDING]
    check_arrival(sent, [found], 5)
    with pytest.raises(Halted, match="published version 6, but sampler 1 of 1 says it has version 5"):
        check_arrival(sent, [batch.arrived()], 6)
    changed = digests({**weights, KEY: weights[KEY] * 2}, dtype=precisions(found.digests))
    with pytest.raises(Halted, match=f"another tensor '{KEY}'"):
        check_arrival(changed, [batch.arrived()], 5)
    with torch.inference_mode():
        batch._views[KEY][0, 0] += 1  # as if something had written into it
    with pytest.raises(Halted, match=f"another tensor '{KEY}'"):
        check_arrival(sent, [batch.arrived()], 5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: {k: v for k, v in w.items() if k != KEY}, "1 names differ"),
        (lambda w: {**w, "extra": w[KEY]}, "1 names differ"),
        (lambda w: {**w, KEY: w[KEY][:-1]}, "has shape"),
        (lambda w: {f"{KEY[:-7]}.lora_A.weight": w[KEY]}, "sends LoRA factors"),
    ],
    ids=["one missing", "one more", "another shape", "adapters"],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_changes(
    batch: VllmBatch, model: Any, change: Any, said: str
) -> None:
    batch.load(weights_of(model), 1)
    before = batch.arrived()
    with pytest.raises(InvalidArgument, match=said):
        batch.load(change(weights_of(model, 0.5)), 2)
    assert batch.arrived() == before


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot load model"):
        SAMPLER.inference(str(tmp_path), VllmOptions(), 0)
