import pytest
from ledger import Account, InsufficientFunds


def test_deposits():
    account = Account("kim", 20)
    assert account.deposit(1) == 21
    assert account.balance == 21
    assert account.entries == [("deposit", 1)]
    for amount in (0, -5):
        with pytest.raises(ValueError):
            account.deposit(amount)


def test_new_account():
    account = Account("kim")
    assert (account.owner, account.balance, account.overdraft) == ("kim", 0, 0)
    assert account.available() == 0
    assert Account("kim", 5, 7).available() == 12


def test_withdrawals():
    account = Account("kim", 100)
    assert account.withdraw(1) == 99
    assert account.withdraw(90, 9) == 0
    assert account.balance == 0
    assert account.entries[1:] == [("withdrawal", -90), ("fee", -9)]


def test_fee_counts():
    account = Account("kim", 100, 10)
    with pytest.raises(InsufficientFunds):
        account.withdraw(110, fee=1)
    assert account.withdraw(100, fee=10, note="all") == -10
    assert account.entries[0] == ("all", -100)


def test_refused_amounts():
    account = Account("kim", 100)
    with pytest.raises(ValueError, match="negative"):
        account.withdraw(0)
    with pytest.raises(ValueError, match="negative"):
        account.withdraw(1, -1)
    assert account.balance == 100
    assert account.entries == []
