"""What starts the processes of workers, where the machine lets it start none."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from typing import Any

import pytest

from rock_env.env_workers.starting import start_worker
from rock_env.errors import ResourceExhausted
from rock_env.server.envs.rules_pool import RulesPool
from rock_env.telemetry.shown import output_of_children


def _full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(("module", "name"), [(subprocess, "Popen"), (socket, "socketpair")])
def test_it_says_so_and_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    output_of_children()  # made once, and kept
    monkeypatch.setattr(module, name, _full)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  links, not files
    with pytest.raises(
        ResourceExhausted, match=r"cannot start a process for environments: .*Too many open files"
    ):
        start_worker("rock_env.env_workers.host", (), 1 << 30, None, os.environ)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_rules_are_refused_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = RulesPool(references=(), memory_bytes=1 << 30, fencing=None, make_timeout_s=5.0, hang_grace_s=1.0)
    monkeypatch.setattr(subprocess, "Popen", _full)
    with pytest.raises(ResourceExhausted, match="Too many open files"):
        await pool.make("e-1", "terminal", "{}")
    await pool.close()
