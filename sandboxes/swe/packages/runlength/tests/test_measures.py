from runlength import longest_run, ratio, run_count


def test_longest_run():
    assert longest_run("abbbcc") == ("b", 3)
    assert longest_run("aabb") == ("a", 2)
    assert longest_run("x") == ("x", 1)
    assert longest_run("") == (None, 0)


def test_run_count():
    assert run_count("aabcc") == 3
    assert run_count("aabcc", 2) == 2
    assert run_count("aabcc", 3) == 0


def test_ratio():
    assert ratio("aaaa") == 0.5
    assert ratio("ab") == 1.0
    assert ratio("") == 1.0
