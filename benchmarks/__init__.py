"""Benchmarks: `python -m benchmarks.NAME [--quick]`, last line one JSON object.

What tests and benchmarks share lies with the tests, whose folders are put on the path here.
"""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / folder) for folder in ("", "chaos", "escape", "integration", "unit/rock_env")]
