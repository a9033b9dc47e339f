import pytest
from ledger import balance_after, largest_entry, totals

ENTRIES = [("coins", 5), ("shop", -20), ("wage", 80), ("bus", -3), ("bank", -30)]


def test_sums():
    assert totals(ENTRIES) == (85, 53)
    assert totals([("x", -4)]) == (0, 4)
    assert totals([("x", 1)]) == (1, 0)


def test_balances():
    assert balance_after(ENTRIES, 1) == 5
    assert balance_after(ENTRIES, 5) == 32
    assert balance_after(ENTRIES, 3, 100) == 165
    with pytest.raises(IndexError):
        balance_after([], 1)


def test_largest():
    assert largest_entry(ENTRIES) == "wage"
    assert largest_entry(ENTRIES, False) == "bank"
    assert largest_entry([("x", -1), ("y", -1)], False) == "x"
    assert largest_entry([("x", -1)]) is None
    assert largest_entry([("x", 1), ("y", -9)]) == "x"
