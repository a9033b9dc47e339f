import pytest
from ledger import balance_after, largest_entry, totals

ENTRIES = [("pay", 900), ("rent", -600), ("gift", 50), ("food", -45)]


def test_totals():
    assert totals(ENTRIES) == (950, 645)
    assert totals([]) == (0, 0)
    assert totals([("a", 1), ("b", -1)]) == (1, 1)


def test_balance_after():
    assert balance_after(ENTRIES, 2) == 300
    assert balance_after(ENTRIES, 4, opening=10) == 315
    assert balance_after(ENTRIES, 0) == 0
    with pytest.raises(IndexError):
        balance_after(ENTRIES, 5)


def test_largest_entry():
    assert largest_entry(ENTRIES) == "pay"
    assert largest_entry(ENTRIES, incoming=False) == "rent"
    assert largest_entry([("a", 1), ("b", 1)]) == "a"
    assert largest_entry([("a", -1), ("b", -9), ("c", -2)], False) == "b"
    assert largest_entry([]) is None
