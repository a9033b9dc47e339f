"""A suite of the services that the fast part runs over REST in parts only: each test of it once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONTRACT = Path(__file__).parents[2] / "contract"


def test_the_lifecycle_suite_holds_over_rest() -> None:
    suite = "test_sandbox_lifecycle_service.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(CONTRACT / suite)]
    done = subprocess.run(
        command,
        env={**os.environ, "ROCK_TEST_TRANSPORTS": "rest"},
        cwd=CONTRACT.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
