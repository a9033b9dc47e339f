"""Bug reports made from failing tests, and the suites run with a planted bug."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
FIXED = {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SOURCE = '''\
"""Wallets."""


def total(coins, fee=0):
    """Return the sum of the coins without the fee."""
    if fee < 0:
        raise ValueError("a fee costs")
    due = sum(coins)
    return due - fee


class Wallet:
    """Holds coins."""

    def __init__(self):
        self.coins = []

    def put(self, coin):
        """Add a coin and return how many there are."""
        self.coins.append(coin)
        return len(self.coins)
'''
VISIBLE = """\
import pytest
from wallets import Wallet, total


def test_total():
    assert total([1, 2]) == 3
    assert total([1, 2], 1) == 2


def test_put():
    assert Wallet().put(3) == 1


def test_fee():
    with pytest.raises(ValueError):
        total([], -1)
"""
HIDDEN = """\
import pytest
from wallets import Wallet, total

COINS = (5, 2)


def test_totals():
    assert total(COINS) == 7
    for fee in (1, 3):
        assert total([4, 4], fee) == 8 - fee


def test_puts():
    wallet = Wallet()
    wallet.put(2)
    assert wallet.put(7) == 2


def test_fees():
    with pytest.raises(ValueError):
        total([1], -2)
    assert total([9], 0) == 9
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "wallets"
    for path, text in {
        "wallets/__init__.py": "from wallets.coins import Wallet, total\n",
        "wallets/coins.py": SOURCE,
        "tests/test_coins.py": VISIBLE,
        "hidden/test_more.py": HIDDEN,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


EDITS = {
    "wrong sign": ("return due - fee", "return due + fee"),
    "no return": ("    return due - fee", "    due - fee"),
    "wrong variable": ("due = sum(coins)", "due = sum(fee)"),
    "swallowed": ('raise ValueError("a fee costs")', "return None"),
    "other error": ('raise ValueError("a fee costs")', "raise KeyError(fee)"),
    "miscounted": ("return len(self.coins)", "return len(self.coins) - 1"),
    "wrong limit": ("fee < 0", "fee <= 0"),
    "endless": ("due = sum(coins)", "while True: pass"),
    "no Python": ("def total(", "def total(("),
    "exit": ("due = sum(coins)", "import os; os._exit(0)"),
    "untouched": ("", ""),
}
RUNNER = """\
import dataclasses, json, sys
from pathlib import Path
from swe_mutants import workshop

package, source, edits = Path(sys.argv[1]), *json.loads(sys.stdin.read())
runs = {}
with workshop(package) as shop:
    for name, (old, new) in edits.items():
        text = source.replace(old, new)
        assert (text != source) == bool(old), name
        runs[name] = [shop.run("wallets/coins.py", text)]
        if runs[name][0].ended:
            runs[name].append(shop.confirm("wallets/coins.py", text))
    assert (shop.folder / "wallets/coins.py").read_text() == source, "it is put back"
print(json.dumps({name: [dataclasses.asdict(run) for run in each] for name, each in runs.items()}))
"""


@pytest.fixture(scope="module")
def runs(package: Path) -> dict[str, Any]:
    """Run every edit in a process of its own: each run forks."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(package)],
        input=json.dumps([SOURCE, EDITS]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent)]), **FIXED},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("name", "failing", "report"),
    [
        ("wrong sign", "test_totals", "`total([4, 4], 1)` returns 9; it should be 7."),
        ("no return", "test_fees test_totals", "`total((5, 2))` returns None; it should be 7."),
        (
            "wrong variable",
            "test_fees test_totals",
            "`total((5, 2))` fails with TypeError: 'int' object is not iterable; it should be 7.",
        ),
        ("swallowed", "test_fees", "`total([1], -2)` returns None; it should raise ValueError."),
        ("other error", "test_fees", "`total([1], -2)` fails with KeyError: -2; it should raise ValueError."),
        (
            "miscounted",
            "test_puts",
            "After\n\n    wallet = Wallet()\n    wallet.put(2)\n\n`wallet.put(7)` returns 1; it should be 2.",
        ),
    ],
)
def test_a_failing_test_tells_what_was_called_what_came_and_what_was_wanted(
    runs: dict[str, Any], name: str, failing: str, report: str
) -> None:
    run = runs[name][0]
    assert run["ended"]
    failed = sorted(test for test, passed in run["hidden"].items() if not passed)
    assert failed == [f"test_more.py::{test}" for test in failing.split()]
    assert report in run["reports"].values()
    assert not all(run["visible"].values())


@pytest.mark.parametrize("name", [name for name in EDITS if name not in ("endless", "no Python", "exit")])
def test_the_quick_run_agrees_with_pytest(runs: dict[str, Any], name: str) -> None:
    quick, real = runs[name]
    assert (quick["visible"], quick["hidden"]) == (real["visible"], real["hidden"])
    assert (len(real["visible"]), len(real["hidden"])) == (3, 3)
    assert all(real["hidden"].values()) == (name == "untouched")


@pytest.mark.parametrize("name", ["endless", "no Python", "exit"])
def test_what_does_not_end_or_begin_is_no_task(runs: dict[str, Any], name: str) -> None:
    (run,) = runs[name]
    assert not run["ended"]
