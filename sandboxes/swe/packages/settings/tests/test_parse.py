import pytest

from settings import parse, parse_line, render


def test_parse_line():
    assert parse_line(" Name = Ann Lee ") == ("setting", "name", "Ann Lee")
    assert parse_line("a=b=c") == ("setting", "a", "b=c")
    assert parse_line("[ big one ]") == ("section", "big one", None)
    assert parse_line("empty =") == ("setting", "empty", "")


def test_blank_lines():
    for line in ("", "   ", "; note = 1", " ! note"):
        assert parse_line(line) == ("blank", None, None)


def test_bad_lines():
    with pytest.raises(ValueError, match="not closed"):
        parse_line("[a")
    with pytest.raises(ValueError, match="needs a value"):
        parse_line("just words")


def test_parse():
    text = "x = 1\n[one]\n\ny = 2\ny = 3\n[two]\n[one]\nz = 4"
    assert parse(text) == {"main": {"x": "1"}, "one": {"y": "3", "z": "4"}, "two": {}}
    assert parse("x = 1", "top") == {"top": {"x": "1"}}
    assert parse("; note") == {}


def test_render():
    sections = {"b": {"y": "2", "x": "1"}, "a": {}}
    assert render(sections) == "[a]\n[b]\nx = 1\ny = 2"
    assert parse(render(sections)) == sections
