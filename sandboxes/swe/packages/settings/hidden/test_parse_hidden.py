import pytest

from settings import parse, parse_line, render


def test_lines():
    assert parse_line("Path=/a/b") == ("setting", "path", "/a/b")
    assert parse_line("\tKEY =  Two Words") == ("setting", "key", "Two Words")
    assert parse_line("[s]") == ("section", "s", None)
    assert parse_line(";x") == ("blank", None, None)
    assert parse_line("!") == ("blank", None, None)
    assert parse_line("  ") == ("blank", None, None)


def test_errors():
    with pytest.raises(ValueError, match="not closed"):
        parse("a = 1\n[b")
    with pytest.raises(ValueError, match="needs a value"):
        parse("a = 1\nb]")


def test_sections():
    assert parse("[a]\nk = 1\n[b]\nk = 2") == {"a": {"k": "1"}, "b": {"k": "2"}}
    assert parse("k = 1\nk = 2") == {"main": {"k": "2"}}
    assert parse("k = 1\n[z]", first="zero") == {"zero": {"k": "1"}, "z": {}}
    assert parse("[a]\nx = 1\n[b]\n[a]\ny = 2") == {"a": {"x": "1", "y": "2"}, "b": {}}
    assert parse("") == {}


def test_text():
    assert render({}) == ""
    assert render({"s": {"k": "v"}}) == "[s]\nk = v"
    assert render({"t": {"b": "2", "a": "1"}, "s": {}}) == "[s]\n[t]\na = 1\nb = 2"
