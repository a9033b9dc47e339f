import pytest
from roman import numeral, table


def test_each_symbol():
    assert numeral(1444) == "MCDXLIV"
    assert numeral(999) == "CMXCIX"
    assert numeral(555) == "DLV"
    assert numeral(111) == "CXI"


def test_repeats():
    assert numeral(2) == "II"
    assert numeral(3333) == "MMMCCCXXXIII"
    assert numeral(1) == "I"
    assert numeral(3999)[-4:] == "XCIX"


def test_refused():
    for number in (0, -3, 4000):
        with pytest.raises(ValueError):
            numeral(number)


def test_table_rows():
    assert list(table(9, 11)) == [9, 10, 11]
    assert table(40, 41)[41] == "XLI"
    assert table(3, 2) == {}
