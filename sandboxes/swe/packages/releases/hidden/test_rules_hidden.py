import pytest

from releases import bump, is_breaking, matches


def test_bumps():
    assert bump("v0.9") == "0.9.1"
    assert bump("0.9.9", "minor") == "0.10.0"
    assert bump("3.4.5-rc", "minor") == "3.5.0"
    assert bump("3.4.5-rc", "major") == "4.0.0"
    assert bump("3.4.5-rc", "patch") == "3.4.5"
    assert bump("3.4.9", "patch") == "3.4.10"
    with pytest.raises(ValueError, match="no such part: stage"):
        bump("1.0", "stage")


def test_breaking():
    assert is_breaking("0.9", "1.9") is True
    assert is_breaking("1.0", "0.0") is True
    assert is_breaking("3.1", "3.1.4") is False
    assert is_breaking("3.9", "3.1") is False
    assert is_breaking("0.1.0", "0.0.9") is True
    assert is_breaking("0.4", "0.4.9") is False


def test_rules():
    assert matches("2.0", ">=1.9.9") is True
    assert matches("2.0-rc", ">=2.0") is False
    assert matches("2.0-rc", "<2.0") is True
    assert matches("2.0", "<2.0") is False
    assert matches("2.0", ">=2.0") is True
    assert matches("2.0", "2") is True
    assert matches("1.9", "2") is False


def test_caret():
    assert matches("0.3.5", "^0.3.2") is True
    assert matches("0.3.2", "^0.3.2") is True
    assert matches("0.4.0", "^0.3.2") is False
    assert matches("0.3.1", "^0.3.2") is False
    assert matches("3.0", "^2.9") is False
