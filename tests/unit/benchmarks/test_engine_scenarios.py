"""What `benchmarks.engines` says of each engine of ours: everything is measured, and what could not be is null."""

import asyncio

import numpy as np
import pytest

from benchmarks.engines import CASES, MEASURED, measured
from benchmarks.sampler_scenarios import Scenario, Sizes
from rock_env import plugins
from trainer.protocols.token_sampler import Sampled, VersionSpan

SMALL = Sizes(history=40, new=8, answer=3, short_prompt=6, short_answer=3, long_prompt=300, long_answer=120)


def test_every_engine_of_ours_has_a_case():
    assert {"tiny", "coder", "hf"} <= set(plugins.names("ale.engines")) & set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_measured_with_weights_that_arrive(name):
    case = CASES[name]()
    if case is None:
        assert name == "vllm", f"nothing is measured of {name}"
        pytest.skip("vLLM is not here: scripts/vllm_cpu.sh makes an environment with it")
    prompt = case.ids(50, 1)
    assert case.low <= prompt.min() <= prompt.max() < case.high
    found = measured(case, SMALL, 1)
    assert found["proof_ms"] > 0
    assert set(MEASURED) <= found.keys() or name in {"tiny", "coder"}, "they do not step"
    assert case.engine.arrived().version == 0
    if name == "hf":
        assert found["turn3_over_new_tokens"] > 0
        # Turn 3 reads its own new tokens and the last that was sampled, which nobody read yet.
        assert found["cached_tokens"] == SMALL.history + SMALL.new + 2 * SMALL.answer - 1


class Instant:
    """Answers before anybody can ask for something else."""

    async def sample(self, request):
        return Sampled(
            request.prompt_ids[:1],
            np.zeros(1, np.float32),
            "length",
            (VersionSpan(0, 0, 1),),
            cached_tokens=7,
        )


def test_a_short_request_that_was_never_beside_a_long_one_is_not_measured():
    scenario = Scenario(Instant(), lambda count, seed: np.arange(count), SMALL)
    assert asyncio.run(scenario.short_beside_long()) == {"short_beside_long": None}
