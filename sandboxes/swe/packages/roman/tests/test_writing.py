import pytest
from roman import numeral, table


def test_small_numbers():
    assert numeral(1) == "I"
    assert numeral(3) == "III"
    assert numeral(4) == "IV"
    assert numeral(9) == "IX"


def test_large_numbers():
    assert numeral(1984) == "MCMLXXXIV"
    assert numeral(2766) == "MMDCCLXVI"
    assert numeral(449) == "CDXLIX"
    assert numeral(3999) == "MMMCMXCIX"


def test_limits():
    with pytest.raises(ValueError):
        numeral(0)
    with pytest.raises(ValueError):
        numeral(4000)


def test_table():
    assert table(4, 6) == {4: "IV", 5: "V", 6: "VI"}
    assert table(7, 7) == {7: "VII"}
