"""Nothing is printed round the function that makes text visible, and the lint that says so finds what it is to find."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def lint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_printing", ROOT / "scripts" / "check_printing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_goes_round(lint: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint.main([]) == 0, capsys.readouterr().out


def test_every_exception_is_needed(lint: ModuleType) -> None:
    needless = [
        name
        for name in lint.ALLOWED
        if not [*lint.writes((ROOT / name).read_text(), command=name.startswith("ale/"))]
    ]
    assert needless == []


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.buffer.write(data)",
        "sys.__stderr__.write(text)",
        "os.write(sys.stderr.fileno(), data)",
        "os.write(2, data)",
        "os.fdopen(1, 'w')",
        "from sys import stdout",
        "from rich import print",
        "Console(stderr=True).print(text)",
        "rich.console.Console()",
        "open('/dev/tty', 'w')",
        "subprocess.run(['docker', 'build', '.'])",
        "subprocess.Popen(command, stdout=subprocess.PIPE)",
        "subprocess.Popen(command, stdout=2, stderr=subprocess.PIPE)",
        "subprocess.run(command, stdout=subprocess.PIPE, stderr=sys.stderr)",
        "await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)",
    ],
)
def test_a_way_round_is_found_in_a_command(lint: ModuleType, code: str) -> None:
    assert [line for line, _ in lint.writes(f"import sys\n{code}\n", command=True)][:1] == [2]


@pytest.mark.parametrize(
    "code", ["print(text)", "typer.echo(text)", "click.secho(text)", "sys.stderr.write(text)"]
)
def test_a_library_that_prints_is_found(lint: ModuleType, code: str) -> None:
    assert [*lint.writes(code, command=False)]
    assert not [*lint.writes(code, command=True)]


def test_a_child_that_is_read_is_no_finding(lint: ModuleType) -> None:
    code = "subprocess.run(c, capture_output=True)\nsubprocess.Popen(c, stdout=PIPE, stderr=STDOUT)\nasyncio.run(f())\n"
    assert not [*lint.writes(code, command=True)]
