"""Sampling from the coder: what was read before changes nothing, and the train engine gives the same probabilities."""

import numpy as np
import pytest
import torch
from coder_chat import FAILED, PATH, TEMPLATE, Chat, shown
from safetensors.torch import load_file

from agent_runtime.policy import Message, SampleRequest
from agent_runtime.types import SamplingParams
from rock_env.errors import InvalidArgument
from trainer.models.coder.engine import BASE, ENGINE, CoderOptions
from trainer.models.coder.words import END
from trainer.protocols.engines import OptimOptions

OPTIONS = {"width": 32, "layers": 3, "heads": 2, "pretrained": False}


@pytest.fixture(scope="module")
def weights():
    train = ENGINE.train("coder", CoderOptions(**OPTIONS), 0, OptimOptions())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, value in train.net.named_parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.05)
    return {name: value.copy() for name, value in train.weights().items()}


def sampler(weights, **options):
    engine = ENGINE.inference("coder", CoderOptions(**OPTIONS, **options), 0)
    engine.load(weights, 1)
    return engine


def chats(count):
    """Return prompts of several turns each, as an environment would make them."""
    grown = []
    for number in range(count):
        chat = Chat()
        turns = [chat.ids]
        for action, reply in (
            ("run_tests", FAILED),
            (f"view {PATH}", shown()),
            ("undo", f"nothing {number}"),
        ):
            turns.append(chat.say(action, reply).ids)
        grown.append(turns)
    return grown


def request(number, turn, ids):
    return SampleRequest(f"r{number}", turn, ids, SamplingParams(max_tokens=6), 31 * number + turn)


def test_turns_read_one_by_one_are_sampled_as_if_read_at_once(weights):
    every = chats(3)
    stepwise = sampler(weights)
    for turn in range(4):
        last = stepwise.sample([request(n, turn, turns[turn]) for n, turns in enumerate(every)])
    fresh = sampler(weights).sample([request(n, 3, turns[3]) for n, turns in enumerate(every)])
    for one, other in zip(last, fresh, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_a_rollout_whose_past_changed_is_read_anew(weights):
    (turns,) = chats(1)
    other = np.concatenate((turns[1][:-1], TEMPLATE.extend([Message("user", "something else")], closed=True)))
    engine = sampler(weights)
    engine.sample([request(0, 1, turns[1])])
    again = engine.sample([request(0, 2, other)])
    assert again[0].ids.tolist() == sampler(weights).sample([request(0, 2, other)])[0].ids.tolist()


def test_new_weights_forget_what_old_ones_read(weights):
    (turns,) = chats(1)
    engine = sampler(weights)
    engine.sample([request(0, 2, turns[2])])
    changed = {name: value * 0.5 for name, value in weights.items()}
    engine.load(changed, 2)
    (after,) = engine.sample([request(0, 3, turns[3])])
    (fresh,) = sampler(changed).sample([request(0, 3, turns[3])])
    assert after.ids.tolist() == fresh.ids.tolist()
    np.testing.assert_allclose(after.logprobs, fresh.logprobs, atol=1e-6)
    assert after.policy_version == 2


def test_the_train_engine_gives_every_sampled_token_the_probability_it_was_sampled_with(weights):
    engine = sampler(weights, max_rows=2)
    train = ENGINE.train("coder", CoderOptions(**OPTIONS), 0, OptimOptions())
    with torch.no_grad():
        for name, value in train.net.named_parameters():
            value.copy_(torch.from_numpy(weights[name]))
    requests = [request(n, turn, turns[turn]) for n, turns in enumerate(chats(4)) for turn in (0, 2, 3)]
    kinds = set()
    for asked, said in zip(requests, engine.sample(requests), strict=True):
        row = np.concatenate((asked.prompt_ids, said.ids)).astype(np.int64)
        at = torch.arange(len(asked.prompt_ids) - 1, len(row) - 1)[None]
        got, _ = train.net.picked(
            torch.from_numpy(row[:-1])[None],
            at,
            torch.arange(len(said.ids)),
            torch.from_numpy(row[len(asked.prompt_ids) :]),
        )
        np.testing.assert_allclose(got.detach().numpy(), said.logprobs, atol=1e-5)
        kinds.add(int(said.ids[0]))
        assert said.finish_reason == ("stop" if said.ids[-1] == END else "length")
    assert len(kinds) > 2, "several kinds of answers were tried"


def test_a_fresh_coder_begins_with_the_base_unless_told_otherwise():
    options = CoderOptions()
    stored = load_file(BASE)
    begun = dict(ENGINE.train("coder", options, 5, OptimOptions()).net.named_parameters())
    assert all(torch.equal(begun[name], value.float()) for name, value in stored.items())
    other = ENGINE.train("coder", CoderOptions(pretrained=False), 5, OptimOptions())
    assert not torch.equal(dict(other.net.named_parameters())["piece"], begun["piece"])
    with pytest.raises(InvalidArgument, match="pretrained=false"):
        ENGINE.train("coder", CoderOptions(width=32, heads=2), 0, OptimOptions())
