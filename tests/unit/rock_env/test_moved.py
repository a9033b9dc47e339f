"""Modules that moved: their old names say where they are, and what users import is where it was."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import rock_env

MOVED = [
    line.split()
    for line in (Path(rock_env.__file__).with_name("moved.txt")).read_text(encoding="utf-8").splitlines()
]
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


QUIET = {
    *("ale.rock", "rock_env.guest.warm", "rock_env.backends.warm_start"),
    *("trainer.engine", "trainer.engine.ranks"),
}
"""A package that offers what the module did, one that zygotes load, a script that nobody imports, and two packages whose
names were all in their modules."""


@pytest.mark.parametrize(("old", "new"), [pair for pair in MOVED if pair[0] not in QUIET])
def test_an_old_name_says_the_new_one(old: str, new: str) -> None:
    module = import_module(new)
    name = next(name for name in (*getattr(module, "__all__", ()), *vars(module)) if not name.startswith("_"))
    with pytest.raises(ImportError, match=rf"{new}\b"):
        getattr(import_module(old), name)


@pytest.mark.parametrize("front", sorted(FRONT))
def test_what_users_import_stays(front: str) -> None:
    module = import_module(front)
    for name in FRONT[front]:
        if not hasattr(module, name):
            import_module(f"{front}.{name}")
