import pytest
from brackets import first_error, is_balanced, partner


def test_errors_found():
    assert first_error("[]{}()") == -1
    assert first_error("}") == 0
    assert first_error("ab{c)") == 4
    assert first_error("(()") == 0


def test_error_after_pair():
    assert first_error("(a) [b") == 4
    assert first_error("x{[") == 1


def test_balance():
    assert is_balanced("") is True
    assert is_balanced("no brackets") is True
    assert is_balanced("())") is False


def test_partner_nested():
    assert partner("{{}}", 1) == 2
    assert partner("{{}}", 0) == 3
    assert partner("x[1](2)", 4) == 6


def test_partner_refuses():
    with pytest.raises(ValueError):
        partner("(a) b", 4)
    with pytest.raises(ValueError):
        partner("[", 0)
