"""Hosted libraries on a private server: fenced in, refused where the kernel does not allow that, or trusted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fences import why_not_isolated

pytest.importorskip("gymnasium", reason="gymnasium is not installed: `pip install gymnasium`")

PLAY = """
import json, os, sys
from pathlib import Path
import rock_env
from rock_env.errors import RockError

def descendants(pid):
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))

def network(pid):
    return os.readlink(f"/proc/{pid}/ns/net")

said = {}
with rock_env.connect(trust_libraries="trust" in sys.argv) as rock:
    for name in ("frozen_lake", "gym:FrozenLake-v1"):
        before = set(descendants(os.getpid()))
        try:
            env = rock.make(name)
            env.reset(seed=1)
            more = set(descendants(os.getpid())) - before
            said[name] = sorted({network(pid) == network("self") for pid in more}, reverse=True)
        except RockError as error:
            said[name] = f"{error.code}: {error}"
print(json.dumps(said))
"""
WITHOUT_NAMESPACES = """
import platform
from rock_env.backends.process import kernel
from rock_env.backends.process.seccomp import assemble
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.install_filter(assemble(platform.machine()))
"""
"""As a container engine's filter does, for this process and its children."""


def play(program: str, *words: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, check=True)
    said: dict[str, object] = json.loads(done.stdout)
    return said


def test_a_library_is_fenced_in_beside_games_that_are_not() -> None:
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")
    said = play(PLAY)
    assert said["frozen_lake"] == [True]
    assert said["gym:FrozenLake-v1"] == [True, False], (
        "beside what stays on the host, workers in another network"
    )


def test_a_library_is_refused_where_it_cannot_be_fenced_in() -> None:
    said = play(WITHOUT_NAMESPACES + PLAY)
    assert said["frozen_lake"] == [True]
    refusal = str(said["gym:FrozenLake-v1"])
    assert refusal.startswith("failed_precondition: ")
    assert "hosted library 'gym' run fenced in, which this machine does not allow: " in refusal
    assert "trust_libraries=True" in refusal


def test_a_trusted_library_needs_no_fence() -> None:
    assert play(WITHOUT_NAMESPACES + PLAY, "trust") == {"frozen_lake": [True], "gym:FrozenLake-v1": [True]}
