import pytest

from parking import daily_fee, lost_ticket_fee, started_hours, stay_fee


def test_hours():
    hours = [started_hours(m) for m in (0, 1, 59, 60, 119, 120, 121)]
    assert hours == [0, 1, 1, 1, 2, 2, 3]
    with pytest.raises(ValueError):
        started_hours(-1)


def test_day():
    assert daily_fee(0) == 0
    assert daily_fee(45) == 300
    assert daily_fee(180) == 700
    assert daily_fee(900, cap=5000) == 3100
    assert daily_fee(900) == 1500
    assert daily_fee(200, first_hour=10, next_hour=1) == 13


def test_stay():
    assert stay_fee(0) == 0
    assert stay_fee(15) == 0
    assert stay_fee(16) == 300
    assert stay_fee(1441) == 1800
    assert stay_fee(3 * 1440) == 4500
    assert stay_fee(2880 + 1200, cap=1000) == 3000
    assert stay_fee(20, free=20) == 0
    assert stay_fee(20, 19) == 300


def test_lost():
    assert lost_ticket_fee(1) == 2500
    assert lost_ticket_fee(-2) == 2500
    assert lost_ticket_fee(4, cap=10) == 1040
    assert lost_ticket_fee(2, handling=0) == 3000
