"""The command line as a user runs it, for tests: one process, its words, its exit code."""

import os
import subprocess
import sys
from pathlib import Path

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def ale(
    *words: str,
    cwd: Path,
    limit_bytes: int | None = None,
    typed: str = "",
    timeout_s: float = 100,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    # The child limits itself: a fork that runs Python is not safe once a test here has used gRPC.
    limited = ["-c", LIMITED, str(limit_bytes)] if limit_bytes is not None else []
    return subprocess.run(
        [sys.executable, *limited, "-m", "ale", *words],
        cwd=cwd,
        input=typed,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=False,
        timeout=timeout_s,
    )


def lines_of(stderr: str) -> list[str]:
    """Return the lines of standard error, but those that say what was waited for: a busy machine has more of them."""
    return [line for line in stderr.strip().splitlines() if not line.startswith("waiting for ")]


def refused(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """The process ended with `code` and one line that says all of `parts`, beside what it waited for."""
    assert done.returncode == code, done.stdout + done.stderr
    lines = lines_of(done.stderr)
    assert len(lines) == 1, done.stderr
    for part in parts:
        assert part in lines[0]
