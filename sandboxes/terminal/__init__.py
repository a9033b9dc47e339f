"""Shell tasks in five families (files, archives, processes, git, data), graded by the state left. See README.md."""

from rock_env.spec import EnvSpec, Picture, Resources, SandboxSpec
from sandboxes.terminal.catalog import make_tasks
from sandboxes.terminal.env import make
from sandboxes.terminal.oracle import make_oracle, optimum
from sandboxes.terminal.params import TerminalParams

__all__ = ["ENV"]

ENV = EnvSpec(
    name="terminal",
    version="0.1",
    summary="Do a task in a shell: files, archives, processes, git, data; graded by the state left.",
    params=TerminalParams,
    factory=make,
    tasks=make_tasks,
    oracle=make_oracle,
    optimum=optimum,
    sandbox=SandboxSpec(
        resources=Resources(memory_bytes=1 << 30, disk_bytes=256 << 20, pids=128),
        env=(
            # Equal actions make equal commits.
            ("GIT_AUTHOR_DATE", "2024-03-20T12:00:00+0000"),
            ("GIT_AUTHOR_EMAIL", "agent@example.com"),
            ("GIT_AUTHOR_NAME", "agent"),
            ("GIT_COMMITTER_DATE", "2024-03-20T12:00:00+0000"),
            ("GIT_COMMITTER_EMAIL", "agent@example.com"),
            ("GIT_COMMITTER_NAME", "agent"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_EDITOR", "true"),
            ("GIT_PAGER", "cat"),
            ("LC_ALL", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONHASHSEED", "0"),
            ("TZ", "UTC"),
        ),
    ),
    snapshots=True,
    picture=Picture("diff"),
)
