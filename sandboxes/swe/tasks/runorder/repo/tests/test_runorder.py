import pytest

from runorder import CycleError, ParseError, parse, plan


def test_parse():
    assert parse("a: b c  # both\n\nb:\nc: b\n") == {"a": ["b", "c"], "b": [], "c": ["b"]}


@pytest.mark.parametrize("line", ["no colon", "two words: x", ": x"])
def test_parse_refuses(line):
    with pytest.raises(ParseError, match="line 1"):
        parse(line)


def test_chain():
    assert plan({"a": ["b"], "b": ["c"], "c": []}) == ["c", "b", "a"]


def test_cycle():
    with pytest.raises(CycleError):
        plan({"a": ["b"], "b": ["a"]})
