"""Six kills of real runs through three servers: `python -m benchmarks.kills` is the long one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from integration.postgres_server import binaries

pytestmark = [pytest.mark.ray, pytest.mark.turn(2), pytest.mark.timeout(600)]


def test_killed_runs_of_every_mode_lose_nothing_and_learn_nothing_twice() -> None:
    if binaries() is None:
        pytest.skip("needs PostgreSQL's programs: apt-get install postgresql")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", "--quick", "--part", "real"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills_real"] == 6
    assert {name: found[name] for name in ("lost", "twice", "over_lag", "failed", "differ")} == {
        "lost": 0,
        "twice": 0,
        "over_lag": 0,
        "failed": 0,
        "differ": 0,
    }
    modes = found["real"]
    assert list(modes) == ["frozen_lake sync", "frozen_lake pipeline", "frozen_lake stream"]
    victims = {victim for mode in modes.values() for victim in mode["kills"]}
    assert victims == {"run", "server", "learner", "worker", "sampler"}
