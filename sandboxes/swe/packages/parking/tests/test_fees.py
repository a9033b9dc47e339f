import pytest

from parking import daily_fee, lost_ticket_fee, started_hours, stay_fee


def test_started_hours():
    assert started_hours(0) == 0
    assert started_hours(1) == 1
    assert started_hours(60) == 1
    assert started_hours(61) == 2
    with pytest.raises(ValueError):
        started_hours(-1)


def test_daily_fee():
    assert daily_fee(0) == 0
    assert daily_fee(60) == 300
    assert daily_fee(130) == 700
    assert daily_fee(1000) == 1500


def test_daily_fee_options():
    assert daily_fee(120, 100, 50) == 150
    assert daily_fee(120, 100, 50, 120) == 120


def test_stay_fee():
    assert stay_fee(15) == 0
    assert stay_fee(16) == 300
    assert stay_fee(1440) == 1500
    assert stay_fee(2 * 1440 + 70) == 3500


def test_stay_fee_options():
    assert stay_fee(30, free=30) == 0
    assert stay_fee(600, cap=900) == 900
    assert stay_fee(1450, cap=900) == 1200


def test_lost_ticket_fee():
    assert lost_ticket_fee(2) == 4000
    assert lost_ticket_fee(0) == 2500
    assert lost_ticket_fee(3, 100, 7) == 307
