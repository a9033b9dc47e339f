"""A registered environment for tests of how it is found; its image is never started."""

from __future__ import annotations

from rock_env.grading.model import Build, Task, Verifier
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration


def register(name: str, *words: str) -> Registration:
    """Register an environment with a task for each word, in the folder of `ALE_HOME`."""
    tasks = [
        Task(word, f"Say {word}.", Build(image="busybox"), Verifier(("true",), "exit_code")) for word in words
    ]
    record = Registration(
        name=name,
        digest=registered.digest_of(tasks, ["busybox"] * len(tasks)),
        source="/somewhere",
        registered_at=0.0,
        tasks=len(tasks),
        images=("busybox",),
    )
    registered.store(record, tasks)
    return record
