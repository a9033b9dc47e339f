from passcheck import count_classes, longest_run, longest_series


def test_classes():
    assert count_classes("ZZ") == 1
    assert count_classes("42") == 1
    assert count_classes("a b") == 2
    assert count_classes("Zz9") == 3
    assert count_classes("  ") == 1
    assert count_classes("zZ9 zZ9 ") == 4


def test_runs():
    assert longest_run("aabbb") == 3
    assert longest_run("aaab") == 3
    assert longest_run("k") == 1
    assert longest_run("") == 0
    assert longest_run("aabaa") == 2


def test_series():
    assert longest_series("acegi") == 1
    assert longest_series("45678") == 5
    assert longest_series("cba") == 1
    assert longest_series("xyzab") == 3
    assert longest_series("m") == 1
    assert longest_series("") == 0
