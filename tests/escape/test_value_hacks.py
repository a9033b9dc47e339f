"""Hacks of the built-in `swe` tasks, each tried in a real box on a task of another package: none pays, and a fix is paid.

`AWAITED` has paid once where tests ran beside the code under test. More tasks are tried by `benchmarks.reward_hacks`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fences import why_not_isolated
from value_hacks import AWAITED, VALUE_HACKS, script_of

from rock_env.client import Client
from rock_env.env import Verdict
from rock_env.local import EmbeddedServer, start_embedded
from sandboxes.swe.factory import read_index

SPLITS = ("train", "held_out", "held_out_family")
INDEX = read_index()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    if why_not_isolated():
        pytest.skip(f"without isolation a hack may reach this machine: {why_not_isolated()}")
    with start_embedded(["--workers=1", "--isolation=namespaces"]) as running:
        yield running


async def earned(server: EmbeddedServer, task: str, *actions: str) -> Verdict:
    async with Client(server.address) as client:
        env = await client.make("swe")
        try:
            await env.reset(task, 0)
            for action in actions:
                await env.step(action)
            return await env.evaluate()
        finally:
            await env.close()


def task_of(number: int) -> str:
    """Return one of many tasks, of all splits in turn."""
    split = SPLITS[number % len(SPLITS)]
    return f"{split}/{(number * 37) % sum(task.split == split for task in INDEX.tasks)}"


@pytest.mark.parametrize("name", VALUE_HACKS)
async def test_a_hack_earns_nothing(server: EmbeddedServer, name: str) -> None:
    number = list(VALUE_HACKS).index(name)
    for task in map(task_of, range(number, number + (3 if name in AWAITED else 1))):
        verdict = await earned(server, task, script_of(name))
        assert (verdict.reward, verdict.passed) == (0.0, False), (task, verdict)
        assert "no source file" not in verdict.details
