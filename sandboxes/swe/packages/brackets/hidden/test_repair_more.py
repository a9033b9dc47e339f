import pytest
from brackets import missing_closers, strip_quotes


def test_closers():
    assert missing_closers("") == ""
    assert missing_closers("[({") == "})]"
    assert missing_closers("a[1](b") == ")"


def test_closers_refused():
    for text in (")", "{]", "()]"):
        with pytest.raises(ValueError):
            missing_closers(text)


def test_quotes():
    assert strip_quotes('""') == ""
    assert strip_quotes('"(" (a) ")"') == " (a) "
    assert strip_quotes("|x|y", "|") == "y"
    with pytest.raises(ValueError):
        strip_quotes('"')
