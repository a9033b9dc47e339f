"""What is printed can neither steer nor deceive the terminal that shows it."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ale.docker import run_shown
from ale.terminal import Output, print_table, stderr, stdout, visible
from rock_env.telemetry.shown import visible_streams

CLIPBOARD = "\x1b]52;c;bHM=\x07"
"""Writes the clipboard of many terminals."""
SHOWN = "\\x1b]52;c;bHM=\\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nand more", "plain\ttext\nand more"),
        ("\x1b[31mred\x1b[0m \x1b[1;36mbold\x1b[m", "\x1b[31mred\x1b[0m \x1b[1;36mbold\x1b[m"),
        (CLIPBOARD, SHOWN),
        ("a\rb\x08c\x00\x7f", "a\\x0db\\x08c\\x00\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b[8mconcealed\x1b[0m", "\\x1b[8mconcealed\x1b[0m"),
        ("\x1b[31;8mconcealed", "\\x1b[31;8mconcealed"),
        ("\x1b[30mblack\x1b[40m", "\\x1b[30mblack\\x1b[40m"),
        ("\x1b[38;5;0mblack", "\\x1b[38;5;0mblack"),
        (
            "tpircs\u202e \u2066a\u2069 \u200eb\u200f\u061c",
            "tpircs\\u202e \\u2066a\\u2069 \\u200eb\\u200f\\u061c",
        ),
        ("a\u200bb\u200dc\ufeff\u2060\u00ad", "a\\u200bb\\u200dc\\ufeff\\u2060\\xad"),
        ("\U000e0041\U000e0100", "\\U000e0041\\U000e0100"),
        ("a\u2028b\u2029c\x85", "a\\u2028b\\u2029c\\x85"),
        ("\udc80\ud800", "\\udc80\\ud800"),
        ("\u3164\u115f", "\\u3164\\u115f"),
        ("é e\u0301 漢　字 🙂 ❤\ufe0f a\u00a0b", "é e\u0301 漢　字 🙂 ❤\ufe0f a\u00a0b"),
    ],
)
def test_what_is_not_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


@given(st.text(st.characters(codec=None), max_size=30))
def test_only_what_is_seen_is_left(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    shown.encode()  # no lone surrogate
    hidden = {mark for mark in shown if unicodedata.category(mark)[0] == "C"} - {"\n", "\t"}
    assert not hidden or hidden == {"\x1b"}


def test_nothing_printed_reaches_the_clipboard(capsys: pytest.CaptureFixture[str]) -> None:
    stdout().print(f"said {CLIPBOARD}")
    print_table(("a",), [(f"cell {CLIPBOARD}",)])
    with visible_streams():
        print(CLIPBOARD)  # noqa: T201
        sys.stderr.writelines([CLIPBOARD])
    stderr().print(CLIPBOARD)
    run_shown(["printf", "%s\n", CLIPBOARD])
    printed = capsys.readouterr()
    assert printed.out.count(SHOWN) == 3
    assert printed.err.count(SHOWN) == 3
    assert not {"\x1b", "\x07"} & {*printed.out, *printed.err}


def test_output_is_raw_to_a_file_and_escaped_to_a_terminal() -> None:
    file = io.TextIOWrapper(io.BytesIO())
    Output(file).write(b"\x1b[2J\xff")
    assert file.buffer.getvalue() == b"\x1b[2J\xff"  # type: ignore[attr-defined]
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        output = Output(terminal)
        for piece in ("\u202e".encode()[:1], "\u202e".encode()[1:], b"\x1b[2Jc\xffh\xc3"):
            output.write(piece)
        output.write(b"", last=True)
        expected, shown = b"\\u202e\\x1b[2Jc\\xffh\\xc3", b""
        while len(shown) < len(expected):  # a terminal gives what it has so far
            shown += os.read(ours, 100)
        assert shown == expected
    os.close(ours)


@pytest.mark.parametrize(
    "program",
    [
        "raise ValueError(TEXT)",
        "import logging; logging.error(TEXT)",
        "import typer; typer.echo(TEXT)",
        "import warnings; warnings.warn(TEXT)",
        "import threading; t = threading.Thread(target=lambda: 1 / len(TEXT[:0]), name=TEXT); t.start(); t.join()",
        "import rich; rich.print(TEXT)",
        "from rock_env.env_workers import starting\n"
        "import subprocess, time\n"
        "subprocess.run(['printf', '%s\\n', TEXT], stdout=starting.output_of_children())\n"
        "time.sleep(0.5)",
    ],
)
def test_every_way_of_a_command_is_visible(program: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os\nfrom rock_env.telemetry.shown import show_visibly\nshow_visibly()\n"
        f"TEXT = os.environ['SAID']\n{program}\n"
    )
    said = f"{CLIPBOARD}\x1b[8mhidden\u202e"
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "SAID": said}, capture_output=True, check=False
    )
    printed = (done.stdout + done.stderr).decode()
    assert "hidden\\u202e" in printed
    assert not {"\x1b", "\x07", "\u202e"} & {*printed}


def test_an_error_of_the_command_line_is_visible() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ale", "replay", "show", f"/nowhere{CLIPBOARD}\u202e", "x"],
        capture_output=True,
        check=False,
    )
    printed = (done.stdout + done.stderr).decode()
    assert "\\u202e" in printed
    assert not {"\x1b", "\x07", "\u202e"} & {*printed}
