import pytest
from brackets import missing_closers, strip_quotes


def test_missing_closers():
    assert missing_closers("f(a[1") == "])"
    assert missing_closers("{(x)") == "}"
    assert missing_closers("()") == ""


def test_missing_closers_error():
    with pytest.raises(ValueError):
        missing_closers("(]")
    with pytest.raises(ValueError):
        missing_closers("a)")


def test_strip_quotes():
    assert strip_quotes('a"b"c') == "ac"
    assert strip_quotes("x'('y", quote="'") == "xy"
    assert strip_quotes("plain") == "plain"
    with pytest.raises(ValueError):
        strip_quotes('say "hi')
