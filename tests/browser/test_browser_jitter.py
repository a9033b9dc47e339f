"""What is observed does not depend on how fast anything is: processes of the box stand still for a while, at any time."""

from __future__ import annotations

import pytest

from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from rock_env.spec import TaskSpec
from sandboxes.browser import ENV
from sandboxes.browser.catalog import BrowserTasks
from sandboxes.browser.env import BrowserEnv
from sandboxes.browser.params import BrowserParams

pytestmark = pytest.mark.timeout(600)
PARAMS = BrowserParams()
SOURCE = BrowserTasks(PARAMS)
JITTER = """
import os, pathlib, random, signal, sys, time
chance = random.Random(int(sys.argv[1]))
while True:
    there = [int(each.name) for each in pathlib.Path('/proc').glob('[0-9]*')]
    victim = chance.choice(sorted(set(there) - {1, os.getpid()}))
    try:
        os.kill(victim, signal.SIGSTOP)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(victim, signal.SIGCONT)
    except ProcessLookupError:
        pass
"""


async def played(box: Sandbox, task: TaskSpec, seed: int) -> list[str]:
    """Play the reference policy and return what was observed; with a seed, processes stand still for 0 to 300 ms."""
    env, oracle = BrowserEnv(PARAMS), ENV.oracle(PARAMS, task)
    observation, _ = await env.reset(box, task, 0)
    if seed:
        await box.start_process(["python3", "-c", JITTER, str(seed)])
    seen = [observation]
    while True:
        result = await env.step(box, oracle(seen[-1]))
        if result.terminated:
            break
        seen.append(result.observation)
    assert (await env.evaluate(box)).passed
    return seen


@pytest.mark.parametrize("index", [0, 3, 4])
async def test_jitter_changes_no_observation(backend: ProcessBackend, index: int) -> None:
    assert ENV.sandbox is not None
    task = SOURCE.get("held_out", index)
    seen = []
    for seed in (0, 1, 2):
        box = await backend.create(ENV.sandbox, sandbox_id=f"jitter-{seed}")
        seen.append(await played(box, task, seed))
        await box.close()
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
