import pytest
from units import convert, kind_of
from units.convert import temperature


def test_kind_of():
    assert kind_of("km") == "length"
    assert kind_of("g") == "weight"
    assert kind_of("x") is None
    assert kind_of("x", "none") == "none"


def test_convert():
    assert convert(3, "km", "m") == 3000
    assert convert(250, "cm", "m") == 2.5
    assert convert(2, "h", "min") == 120
    assert convert(1, "t", "kg") == 1000


def test_convert_small_units():
    assert convert(2, "m", "mm") == 2000
    assert convert(3, "kg", "g") == 3000
    assert convert(1, "d", "s") == 86400


def test_convert_errors():
    with pytest.raises(ValueError, match="unknown"):
        convert(1, "foo", "m")
    with pytest.raises(ValueError):
        convert(1, "kg", "m")


def test_temperature():
    assert temperature(100) == 212
    assert temperature(41, "F", "C") == 5
    assert temperature(0, "C", "K") == 273
    assert temperature(300, "K", "C") == 27
    assert temperature(20, "C", "C") == 20
