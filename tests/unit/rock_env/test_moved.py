"""Modules that moved: their old names say where they are, and what users import is where it was."""

from __future__ import annotations

from importlib import import_module

import pytest

from rock_env.moved import MOVED

FRONT = {
    "agent_runtime.gateway.http_server": ("serving",),
    "agent_runtime.gateway.pull": ("PulledAgent",),
    "agent_runtime.gateway.recording": ("Recorder", "Replay"),
    "agent_runtime.gateway.server": ("Gateway",),
    "agent_runtime.gateway.session": ("Budget",),
    "agent_runtime.replay": ("replay",),
    "agent_runtime.store": ("index", "read_segment"),
    "ale": ("api", "config"),
    "ale.rock": ("connected",),
    "rock_env": ("connect", "make"),
    "rock_env.client": ("Client",),
    "rock_env.client.registry": ("RegistryClient",),
    "rock_env.env": ("Env", "Info", "Oracle", "StepResult", "Verdict"),
    "rock_env.errors": ("FailedPrecondition",),
    "rock_env.gem": ("register",),
    "rock_env.spec": ("EnvParams", "EnvSpec", "TaskSource", "TaskSpec"),
    "rock_env.tasks": ("ProceduralTasks",),
    "rock_env.tasksets.detect": ("read_tasks",),
    "rock_env.tasksets.environment": ("make_env_spec",),
    "rock_env.tasksets.images": ("build_images",),
}
"""What docs, examples and the scaffold import: it stays where it is."""


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_former_name_says_the_new_one(old: str) -> None:
    import_module(MOVED[old])
    with pytest.raises(
        ImportError, match=f"the module {old} has moved: import {MOVED[old]} instead"
    ) as caught:
        import_module(old)
    assert caught.value.name == old


@pytest.mark.parametrize("unknown", ["trainer.engine.nothing", "trainer.nothing", "rock_env.nothing"])
def test_a_name_that_never_was_is_not_found(unknown: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(unknown)


@pytest.mark.parametrize("front", sorted(FRONT))
def test_what_users_import_stays(front: str) -> None:
    module = import_module(front)
    for name in FRONT[front]:
        if not hasattr(module, name):
            import_module(f"{front}.{name}")
