from passcheck import count_classes, longest_run, longest_series


def test_count_classes():
    assert count_classes("abc") == 1
    assert count_classes("aB3!") == 4
    assert count_classes("A-1") == 3
    assert count_classes("a1b2") == 2
    assert count_classes("") == 0


def test_longest_run():
    assert longest_run("abbbcc") == 3
    assert longest_run("abab") == 1
    assert longest_run("xx") == 2
    assert longest_run("") == 0


def test_longest_series():
    assert longest_series("xabcdz") == 4
    assert longest_series("321") == 1
    assert longest_series("12-345") == 3
    assert longest_series("aab") == 2
    assert longest_series("") == 0
