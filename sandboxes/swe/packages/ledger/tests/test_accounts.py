import pytest
from ledger import Account, InsufficientFunds


def test_deposit():
    account = Account("mia")
    assert account.deposit(500) == 500
    assert account.deposit(1, note="gift") == 501
    assert account.entries == [("deposit", 500), ("gift", 1)]
    with pytest.raises(ValueError):
        account.deposit(0)


def test_available():
    assert Account("mia", 30, overdraft=70).available() == 100
    assert Account("mia", 30).available() == 30


def test_withdraw():
    account = Account("mia", 1000)
    assert account.withdraw(300) == 700
    assert account.withdraw(100, fee=5, note="rent") == 595
    assert account.entries[0] == ("withdrawal", -300)
    assert account.entries[1:] == [("rent", -100), ("fee", -5)]


def test_withdraw_limit():
    account = Account("mia", 50, overdraft=50)
    with pytest.raises(InsufficientFunds):
        account.withdraw(99, fee=2)
    assert account.withdraw(100) == -50
    with pytest.raises(InsufficientFunds):
        account.withdraw(1)
    assert len(account.entries) == 1


def test_withdraw_bad_amounts():
    account = Account("mia", 10)
    assert account.withdraw(1) == 9
    with pytest.raises(ValueError, match="negative"):
        account.withdraw(0)
    with pytest.raises(ValueError, match="negative"):
        account.withdraw(5, fee=-1)
