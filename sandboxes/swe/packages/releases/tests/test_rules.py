import pytest

from releases import bump, is_breaking, matches


def test_bump():
    assert bump("1.2.3") == "1.2.4"
    assert bump("1.2.3", "minor") == "1.3.0"
    assert bump("1.2.3", "major") == "2.0.0"
    assert bump("1.2.3-rc.1") == "1.2.3"
    with pytest.raises(ValueError):
        bump("1.2.3", "huge")


def test_is_breaking():
    assert is_breaking("1.9.0", "2.0.0") is True
    assert is_breaking("1.2.0", "1.9.5") is False
    assert is_breaking("0.2.0", "0.3.0") is True
    assert is_breaking("0.2.1", "0.2.9") is False
    assert is_breaking("0.2.0", "1.2.0") and is_breaking("1.2.0", "0.2.0")


def test_matches():
    assert matches("1.2.0", ">=1.2") and not matches("1.1.9", ">=1.2")
    assert matches("1.1.9", "<1.2") and not matches("1.2.0", "<1.2")
    assert matches("1.2.0", "1.2") and not matches("1.2.1", "1.2")


def test_matches_compatible():
    assert matches("1.4.0", "^1.2") is True
    assert matches("1.2.0", "^1.2") is True
    assert matches("1.1.0", "^1.2") is False
    assert matches("2.0.0", "^1.2") is False
