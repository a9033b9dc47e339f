import pytest
from units import convert, kind_of
from units.convert import temperature


def test_kinds():
    assert [kind_of(unit) for unit in ("mm", "t", "d")] == ["length", "weight", "time"]
    assert kind_of("mile") is None
    assert kind_of("mile", "?") == "?"


def test_converted():
    assert convert(45, "mm", "cm") == 4.5
    assert convert(3, "d", "h") == 72
    assert convert(5, "kg", "g") == 5000
    assert convert(90, "s", "min") == 1.5


def test_more_factors():
    assert convert(1, "km", "mm") == 1000000
    assert convert(2, "t", "g") == 2000000
    assert convert(1, "h", "s") == 3600
    assert convert(7, "m", "mm") == 7000


def test_not_converted():
    with pytest.raises(ValueError, match="unknown"):
        convert(1, "mile", "km")
    for target in ("s", "mile"):
        with pytest.raises(ValueError):
            convert(1, "m", target)


def test_degrees():
    assert temperature(0) == 32
    assert temperature(212, "F", "C") == 100
    assert temperature(50, "F", "K") == 283
    assert temperature(283, "K", "F") == 50
    assert temperature(7, "C", "C") == 7
    assert temperature(7, target="K") == 280
