import pytest

from releases import parse_version, show


def test_reading():
    assert parse_version("0.0.1") == (0, 0, 1, "")
    assert parse_version("v10-alpha") == (10, 0, 0, "alpha")
    assert parse_version("3.04") == (3, 4, 0, "")
    assert parse_version("\t5.6.7\n") == (5, 6, 7, "")


def test_bad_texts():
    for text in ("1.2.3.4", "a.b", "1..2", "-rc", "v", "1.2,3"):
        with pytest.raises(ValueError):
            parse_version(text)
    with pytest.raises(ValueError, match="not a number: 2b"):
        parse_version("1.2b.0")


def test_writing():
    assert show((10, 0, 2, "rc.1")) == "10.0.2-rc.1"
    assert show((4, 5, 6, "a"), prefix="v") == "v4.5.6-a"
    assert show(parse_version("v8.1")) == "8.1.0"
