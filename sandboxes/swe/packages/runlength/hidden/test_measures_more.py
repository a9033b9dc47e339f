from runlength import longest_run, ratio, run_count


def test_longest_at_end():
    assert longest_run("abccc") == ("c", 3)
    assert longest_run("xyz") == ("x", 1)
    assert longest_run([]) == (None, 0)


def test_run_counts():
    assert run_count("") == 0
    assert run_count("abc") == 3
    assert run_count("aaabbbc", 3) == 2
    assert run_count("aaabbbc", shortest=4) == 0


def test_ratios():
    assert ratio("bbbbbbbb") == 0.25
    assert ratio("bbbc") == 0.75
    assert ratio("") == 1.0
