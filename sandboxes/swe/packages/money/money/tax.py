"""Taxes by brackets: (from this income on, percent), lowest first."""

BRACKETS = [(1000, 10), (3000, 20), (6000, 40)]


def marginal_rate(income, brackets=None):
    """Return the percent that the next unit of income is taxed with."""
    rate = 0
    for start, percent in brackets or BRACKETS:
        if income >= start:
            rate = percent
    return rate


def tax(income, brackets=None):
    """Return the tax: each bracket taxes only what lies inside it."""
    if income < 0:
        raise ValueError("income must not be negative")
    steps = brackets or BRACKETS
    due = 0
    for i, (start, percent) in enumerate(steps):
        end = income
        if i + 1 < len(steps):
            end = min(income, steps[i + 1][0])
        if end > start:
            due += (end - start) * percent
    return due // 100


def net_income(gross, children=0, allowance=500):
    """Return what is left of an income; children lower what is taxed."""
    taxed = max(0, gross - children * allowance)
    return gross - tax(taxed)
