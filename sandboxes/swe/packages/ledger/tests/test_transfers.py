import pytest
from ledger import Account, split_amount, transfer


def test_transfer():
    source, target = Account("ann", 100), Account("bob", 5)
    assert transfer(source, target, 60, fee=2) is True
    assert source.balance == 38
    assert target.balance == 65
    assert target.entries == [("from ann", 60)]


def test_transfer_note():
    source = Account("ann", 100)
    assert transfer(source, Account("bob"), 100) is True
    assert source.entries == [("to bob", -100)]


def test_transfer_refused():
    source, target = Account("ann", 10), Account("bob")
    assert transfer(source, target, 11) is False
    assert (source.balance, target.balance) == (10, 0)
    with pytest.raises(ValueError):
        transfer(source, source, 1)


def test_split_amount():
    assert split_amount(10, 3) == [4, 3, 3]
    assert split_amount(11, 3) == [4, 4, 3]
    assert split_amount(8, 1) == [8]
    with pytest.raises(ValueError):
        split_amount(5, 0)
