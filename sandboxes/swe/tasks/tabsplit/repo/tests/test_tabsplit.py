import pytest

from tabsplit import Money, Tab, split_weighted


@pytest.mark.parametrize(("text", "cents"), [("12.34", 1234), ("12", 1200), ("-0.5", -50)])
def test_parse(text, cents):
    assert Money.parse(text) == Money(cents)


def test_format():
    assert str(Money(-5)) == "-0.05"


def test_even_split():
    assert split_weighted(Money(900), {"ann": 1, "bo": 2}) == {"ann": Money(300), "bo": Money(600)}


def test_tab():
    tab = Tab(["ann", "bo"])
    tab.add(Money(4250), paid_by="ann")
    assert tab.balances() == {"ann": Money(2125), "bo": Money(-2125)}
    assert tab.settle() == [("bo", "ann", Money(2125))]
