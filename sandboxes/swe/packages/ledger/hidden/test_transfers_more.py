import pytest
from ledger import Account, split_amount, transfer


def test_moves_money():
    source, target = Account("lea", 50, 50), Account("tom", -20)
    assert transfer(source, target, 100) is True
    assert (source.balance, target.balance) == (-50, 80)
    assert source.entries == [("to tom", -100)]
    assert target.entries == [("from lea", 100)]


def test_too_much():
    source, target = Account("lea", 50), Account("tom", 7)
    assert transfer(source, target, 50, 1) is False
    assert target.entries == []
    assert transfer(source, target, 49, 1) is True
    assert source.balance == 0


def test_wrong_use():
    account = Account("lea", 9)
    with pytest.raises(ValueError):
        transfer(account, account, 5)
    with pytest.raises(ValueError):
        transfer(account, Account("tom"), 0)


def test_shares():
    assert split_amount(7, 4) == [2, 2, 2, 1]
    assert split_amount(9, 3) == [3, 3, 3]
    assert split_amount(1, 2) == [1, 0]
    for people in (0, -1):
        with pytest.raises(ValueError):
            split_amount(1, people)


def test_one_person():
    assert split_amount(5, 1) == [5]
