import pytest

from releases import parse_version, show


def test_parse_version():
    assert parse_version("1.20.3") == (1, 20, 3, "")
    assert parse_version(" v2.1 ") == (2, 1, 0, "")
    assert parse_version("7") == (7, 0, 0, "")
    assert parse_version("1.2.3-rc.1-x") == (1, 2, 3, "rc.1-x")


def test_parse_version_refuses():
    with pytest.raises(ValueError, match="too many parts"):
        parse_version("1.2.3.4")
    with pytest.raises(ValueError, match="not a number: x"):
        parse_version("1.x")
    with pytest.raises(ValueError):
        parse_version("")


def test_show():
    assert show((1, 2, 3, "")) == "1.2.3"
    assert show((1, 0, 3, "beta")) == "1.0.3-beta"
    assert show((0, 9, 0, ""), "v") == "v0.9.0"
