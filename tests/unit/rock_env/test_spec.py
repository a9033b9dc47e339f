"""An environment's description: what an author may leave out."""

from __future__ import annotations

import pytest

from rock_env.errors import Unimplemented
from rock_env.spec import EnvParams, EnvSpec
from rock_env.tasks import ListedTasks


def test_an_environment_may_have_no_reference_policy() -> None:
    source = ListedTasks(["one"], instruction="do {payload}")
    spec = EnvSpec(
        name="bare",
        version="1",
        summary="One task.",
        params=EnvParams,
        factory=lambda params: pytest.fail("nothing is made"),
        tasks=lambda params: source,
    )
    task = source.get("train", 0)
    assert spec.optimum(EnvParams(), task) == 1.0
    with pytest.raises(Unimplemented, match="no reference policy for task 'train/0'"):
        spec.oracle(EnvParams(), task)
