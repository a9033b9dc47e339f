"""What is wrong with a sampler of one's own is said in one line, by its name and class, and nothing is learned from it."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from local_fleet import LocalFleet, config_of, local_run

from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import SamplingParams
from rock_env import plugins
from rock_env.errors import InvalidArgument
from trainer.config import TrainConfig
from trainer.errors import Halted
from trainer.models.tiny.engine import ENGINE
from trainer.processes.samplers import InferenceActor, SteppedActor
from trainer.protocols.engines import SamplerSpec
from trainer.protocols.token_sampler import Sampled, VersionSpan
from trainer.samplers.generate import TorchInference
from trainer.samplers.named import Named

NAMED = r"the sampler 'odd' \(test_named\.Odd\)"


class Odd(TorchInference):
    """A sampler with a bug: `spoil` changes its answers, `fails` breaks a method of its own."""

    spoil: Callable[[list[Completion]], Any] = staticmethod(lambda found: found)
    fails = ""
    keeps_version = False

    def sample(self, requests: Any) -> Any:
        if self.fails == "sample":
            raise KeyError("nothing at all")
        return self.spoil(super().sample(requests))

    def load(self, weights: Any, version: int) -> None:
        if self.fails == "load":
            raise AttributeError("no such layer")
        super().load(weights, 0 if self.keeps_version else version)

    arrived = None  # it states nothing, so that its answers alone can show its version


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Odd]]:
    """Give the sampler `odd`; what is set on the class goes with the test."""

    def inference(model: str, options: Any, seed: int) -> Any:
        engine: Any = ENGINE.inference(model, options, seed)  # type: ignore[misc]
        engine.__class__ = Odd
        return engine

    for name in ("spoil", "fails", "keeps_version"):
        monkeypatch.setattr(Odd, name, Odd.__dict__[name])
    spec = SamplerSpec("odd", "has a bug", ENGINE.options, inference)
    with plugins.given({("ale.engines", "odd"): spec}):
        yield Odd


def config() -> TrainConfig:
    small = config_of(algo="grpo", algo_options={"kl_weight": 0.01})
    return small.model_copy(update={"sampler": "odd", "sampler_options": small.engine_options})


def asked(count: int) -> list[SampleRequest]:
    ids = np.arange(5, 9, dtype=np.int32)
    return [SampleRequest(f"r{n}", 0, ids, SamplingParams(max_tokens=3), n) for n in range(count)]


def of_one(change: Callable[[Completion], Any]) -> Callable[[list[Completion]], Any]:
    return staticmethod(lambda found: [*found[:-1], change(found[-1])])  # type: ignore[return-value]


MALFORMED = {
    "ids in a list": (
        of_one(lambda c: replace(c, ids=[1, 2])),
        "ids as a NumPy array of int32.*list of length 2",
    ),
    "no ids": (
        of_one(lambda c: replace(c, ids=None)),
        "ids as a NumPy array of int32 with one axis, got NoneType",
    ),
    "long ids": (
        of_one(lambda c: replace(c, ids=c.ids.astype(np.int64))),
        "got an array of int64 with the shape",
    ),
    "two axes": (
        of_one(lambda c: replace(c, ids=c.ids[None])),
        r"with one axis, got an array of int32.*\(1, ",
    ),
    "no logprobs": (
        of_one(lambda c: replace(c, logprobs=None)),
        "logprobs as a NumPy array of float32.*NoneType",
    ),
    "double": (of_one(lambda c: replace(c, logprobs=c.logprobs.astype(float))), "array of float32.*float64"),
    "too few": (of_one(lambda c: replace(c, logprobs=c.logprobs[1:])), "one log-probability per id, got"),
    "nan": (
        of_one(lambda c: replace(c, logprobs=c.logprobs * np.float32("nan"))),
        "finite.*got nan for token 0 of",
    ),
    "no completion": (of_one(lambda c: None), "a Completion, got NoneType"),
    "no list": (staticmethod(lambda found: None), "a list of 2 completions, one per request, got NoneType"),
    "one short": (staticmethod(lambda found: found[1:]), "a list of 2 completions.*got list of length 1"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_an_answer_without_form_halts_by_name_with_what_was_expected_and_got(fault, odd):
    odd.spoil, said = MALFORMED[fault]
    actor = InferenceActor(config())
    actor.ready()
    with pytest.raises(Halted, match=f"{NAMED} returned.*expected .*{said}") as caught:
        actor.sample(asked(2))
    assert "--resume" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_run_ends_at_the_first_answer_without_form(odd, tmp_path):
    odd.spoil = MALFORMED["ids in a list"][0]
    with pytest.raises(Halted, match=NAMED):
        local_run(tmp_path, config())


def test_an_exception_fails_what_was_asked_names_the_sampler_and_leaves_its_traceback(odd, caplog):
    odd.fails = "sample"
    actor = InferenceActor(config())
    actor.ready()
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(PolicyError, match=f"{NAMED} failed to sample: KeyError: 'not"),
    ):
        actor.sample(asked(1))
    assert 'raise KeyError("nothing at all")' in caplog.text
    odd.fails = "load"
    with pytest.raises(Halted, match=f"{NAMED} failed to load version 3: AttributeError: no such layer"):
        actor.load({}, 3)
    odd.fails = ""
    with pytest.raises(InvalidArgument, match="names differ"):
        actor.load({}, 3)
    with pytest.raises(PolicyError, match="cannot continue the prompt of rollout 'r0'"):
        actor.sample([replace(asked(1)[0], prompt_ids=np.zeros(0, np.int32))])


def test_a_sampler_that_never_counts_its_version_is_refused_at_the_first_that_does_not_show(odd):
    odd.keeps_version = True
    fleet = LocalFleet(config())
    fleet.publish(0)
    fleet.sample(asked(1))
    fleet.publish(1)
    with pytest.raises(
        Halted, match=f"{NAMED} does not show.*policy_version 1, which it loaded, got 0.*`version`"
    ):
        fleet.sample(asked(1))


class Steps:
    """A batch that answers each request at its first step, with `outcome`."""

    stops = False
    outcome: Any = None

    def __init__(self) -> None:
        self.tickets: list[int] = []

    @property
    def busy(self) -> bool:
        return bool(self.tickets)

    def submit(self, request: SampleRequest) -> int:
        self.tickets.append(len(self.tickets))
        return self.tickets[-1]

    def abort(self, ticket: int) -> bool:
        self.tickets.clear()
        return True

    def step(self) -> Any:
        ended, self.tickets = self.tickets, []
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return [(ticket, self.outcome) for ticket in ended]

    def ended(self) -> list[Any]:
        return []

    def load(self, weights: Any, version: int) -> None: ...


SOUND = Sampled(np.zeros(1, np.int32), np.zeros(1, np.float32), "stop", (VersionSpan(2, 0, 1),))
TWO = replace(SOUND, ids=np.zeros(2, np.int32), logprobs=np.zeros(2, np.float32))
NOT_SOUND: dict[str, tuple[Any, type[Exception], str]] = {
    "nothing": (None, Halted, "returned.*expected a Sampled with one span or more, got None"),
    "no span": (replace(SOUND, spans=()), Halted, "expected a Sampled with one span"),
    "a list": (
        replace(SOUND, ids=[1]),
        Halted,
        "expected ids as a NumPy array of int32.*got list of length 1",
    ),
    "old": (
        replace(SOUND, spans=(VersionSpan(0, 0, 1),)),
        Halted,
        "policy_version 2, which it loaded, got 0",
    ),
    "half old": (
        replace(TWO, spans=(VersionSpan(0, 0, 1), VersionSpan(2, 1, 2))),
        Halted,
        "policy_version 2, which it loaded, got .*version=0, tokens=1.*version=2, tokens=1",
    ),
    "a gap": (
        replace(TWO, spans=(VersionSpan(2, 0, 1), VersionSpan(2, 0, 1))),
        Halted,
        "expected spans in order over all 2 ids",
    ),
    "short": (replace(TWO, spans=(VersionSpan(2, 0, 1),)), Halted, "expected spans in order over all 2 ids"),
    "an empty span": (
        replace(TWO, spans=(VersionSpan(1, 0, 0), VersionSpan(2, 0, 2))),
        Halted,
        "with a token or more each",
    ),
    "exception": (ValueError("a bug"), PolicyError, "failed to sample: ValueError: a bug"),
}


def test_a_request_may_show_the_versions_that_were_loaded_since_it_began_and_none_between_them() -> None:
    named, (one,) = Named("steps", Steps()), asked(1)
    for version in (5, 6):
        named.take(version)
    since = named.loads
    named.take(8)
    for version in (6, 8):
        named.checked(replace(SOUND, spans=(VersionSpan(version, 0, 1),)), one, since)
    both = replace(TWO, spans=(VersionSpan(6, 0, 1), VersionSpan(8, 1, 2)))
    assert named.checked(both, one, since).policy_version == ((6, 1), (8, 1))
    for version in (5, 7):
        with pytest.raises(
            Halted, match=rf"expected completions of policy_version 6 or 8, .* got {version}\."
        ):
            named.checked(replace(SOUND, spans=(VersionSpan(version, 0, 1),)), one, since)


@pytest.mark.parametrize("fault", NOT_SOUND)
async def test_a_sampler_that_steps_is_named_too(fault, caplog):
    spec = SamplerSpec("steps", "answers at once", ENGINE.options, lambda *_: Steps(), steps=True)  # type: ignore[arg-type,return-value]
    with plugins.given({("ale.engines", "steps"): spec}):
        actor = SteppedActor(config().model_copy(update={"sampler": "steps"}))
        actor.ready()
    await actor.load({}, 2)
    actor._engine.outcome = SOUND  # type: ignore[attr-defined]
    assert (await actor.answer(asked(1)[0])).policy_version == 2
    actor._engine.outcome, kind, said = NOT_SOUND[fault]  # type: ignore[attr-defined]
    with pytest.raises(kind, match=rf"the sampler 'steps' \(test_named\.Steps\) .*{said}"):
        await actor.answer(asked(1)[0])
    assert ("Traceback" in caplog.text) == (kind is PolicyError)
