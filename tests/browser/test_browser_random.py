"""A policy of chance passes no kind of task at the sites often, and many of its actions do something."""

from __future__ import annotations

import pytest
from browser.parts import KINDS, RandomPolicy, play, task_number

from rock_env.backends.process.backend import ProcessBackend
from sandboxes.browser import ENV

pytestmark = pytest.mark.timeout(900)
EACH = 2


async def test_chance_passes_no_kind_of_task_twice(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    params, kinds = ENV.params(), sum(map(len, KINDS.values()))
    passed: dict[str, int] = {}
    observed = 0
    for number in range(EACH * kinds):
        task = task_number(number)
        box = await backend.create(ENV.sandbox, sandbox_id=f"random-{number}")
        seen, _, solved = await play(box, params, task, RandomPolicy(task, number))
        await box.close()
        name = task.payload.partition("/")[0]
        passed[name] = passed.get(name, 0) + solved
        observed += len(set(seen))
    assert len(passed) == kinds
    assert max(passed.values()) < EACH, passed
    assert sum(passed.values()) <= 0.1 * EACH * kinds, passed
    assert observed > 3 * EACH * kinds, "pages changed"
