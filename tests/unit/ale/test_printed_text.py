"""What is printed cannot steer the terminal that shows it."""

from __future__ import annotations

import pytest

from ale.terminal import print_table, stdout, visible

CLIPBOARD = "\x1b]52;c;bHM=\x07"
"""Writes the clipboard of many terminals."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nand more", "plain\ttext\nand more"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        (CLIPBOARD, "\\x1b]52;c;bHM=\\x07"),
        ("a\rb\x08c\x00", "a\\x0db\\x08c\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("\x1b[2J", "\\x1b[2J"),
        ("é 漢 🙂", "é 漢 🙂"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_nothing_printed_reaches_the_clipboard(capsys: pytest.CaptureFixture[str]) -> None:
    stdout().print(f"said {CLIPBOARD}")
    print_table(("a",), [(f"cell {CLIPBOARD}",)])
    printed = capsys.readouterr().out
    assert printed.count("\\x1b]52;c;bHM=\\x07") == 2
    assert "\x1b" not in printed
    assert "\x07" not in printed
