import random

import pytest

from tabsplit import Money, Tab, split_weighted


def cents(amount, **weights):
    return {name: share.cents for name, share in split_weighted(Money(amount), weights).items()}


def test_the_cent_that_does_not_divide_goes_to_the_first():
    assert cents(10000, ann=1, bo=1, cy=1) == {"ann": 3334, "bo": 3333, "cy": 3333}
    assert cents(101, ann=1, bo=1) == {"ann": 51, "bo": 50}


def test_shares_add_up_for_many_bills():
    draw = random.Random(7)
    for _ in range(500):
        amount = draw.randrange(-(10**6), 10**6)
        weights = {str(number): draw.randrange(1, 50) for number in range(draw.randrange(1, 9))}
        shares = split_weighted(Money(amount), weights)
        assert sum(share.cents for share in shares.values()) == amount
        assert list(shares) == list(weights)


def test_the_largest_cut_is_served_first():
    # Exact shares: 1.25, 3.75 and 5.00; the one cent left over belongs to bo.
    assert cents(10, ann=1, bo=3, cy=4) == {"ann": 1, "bo": 4, "cy": 5}
    # Exact shares of 5: 0.5, 0.5 and 4.0.
    assert cents(5, ann=1, bo=1, cy=8) == {"ann": 1, "bo": 0, "cy": 4}


def test_a_refund_mirrors_the_bill():
    assert cents(-10000, ann=1, bo=1, cy=1) == {"ann": -3334, "bo": -3333, "cy": -3333}


def test_a_tab_is_settled_to_the_cent():
    tab = Tab(["ann", "bo", "cy"])
    tab.add(Money(10000), paid_by="bo")
    assert sum(balance.cents for balance in tab.balances().values()) == 0
    assert sorted(tab.settle()) == [("ann", "bo", Money(3334)), ("cy", "bo", Money(3333))]


def test_an_even_bill_is_split_evenly():
    assert cents(900, ann=1, bo=1, cy=1) == {"ann": 300, "bo": 300, "cy": 300}


def test_weights_count():
    assert cents(1000, ann=1, bo=4) == {"ann": 200, "bo": 800}


def test_a_weight_of_zero_pays_nothing():
    assert cents(1000, ann=0, bo=3) == {"ann": 0, "bo": 1000}


def test_bad_weights_are_refused():
    for weights in ({}, {"ann": 0}, {"ann": 2, "bo": -1}):
        with pytest.raises(ValueError, match="weight"):
            split_weighted(Money(100), weights)
