"""What scripts make of the sources is what is committed."""

import subprocess
import sys

import pytest
from pages import ROOT


@pytest.mark.parametrize("script", ["chart_values.py", "draw_system.py", "gen_api.py"])
def test_it_is_fresh(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
