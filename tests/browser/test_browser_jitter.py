"""What is observed does not depend on how fast anything is: processes of the box stand still for a while, at any time."""

from __future__ import annotations

import pytest
from browser.parts import play

from rock_env.backends.process.backend import ProcessBackend
from sandboxes.browser import ENV
from sandboxes.browser.catalog import BrowserTasks
from sandboxes.browser.params import BrowserParams

pytestmark = pytest.mark.timeout(600)
PARAMS = BrowserParams()
SOURCE = BrowserTasks(PARAMS)


@pytest.mark.parametrize("index", [0, 3, 4])
async def test_jitter_changes_no_observation(backend: ProcessBackend, index: int) -> None:
    assert ENV.sandbox is not None
    task = SOURCE.get("held_out", index)
    seen = []
    for seed in (0, 1, 2):
        box = await backend.create(ENV.sandbox, sandbox_id=f"jitter-{seed}")
        observed, _, passed = await play(box, PARAMS, task, ENV.oracle(PARAMS, task), seed)
        assert passed
        seen.append(observed)
        await box.close()
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
