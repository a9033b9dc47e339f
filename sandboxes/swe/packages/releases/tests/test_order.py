from releases import compare, latest, sort_key


def test_sort_key():
    texts = ["1.10.0", "1.9.0", "1.9.0-rc.2", "1.9.0-rc.10", "2.0.0"]
    assert sorted(texts, key=sort_key) == [
        "1.9.0-rc.2",
        "1.9.0-rc.10",
        "1.9.0",
        "1.10.0",
        "2.0.0",
    ]


def test_compare():
    assert compare("1.2", "1.10") == -1
    assert compare("2.0.0", "2") == 0
    assert compare("1.0.1", "1.0.0") == 1
    assert compare("1.0.0", "1.0.0-rc") == 1
    assert compare("1.0.0-1", "1.0.0-a") == -1


def test_latest():
    assert latest(["1.2.0", "1.10.0", "1.9.0"]) == "1.10.0"
    assert latest(["1.2.0", "1.3.0-rc"]) == "1.2.0"
    assert latest(["1.2.0", "1.3.0-rc"], True) == "1.3.0-rc"
    assert latest(["v1.0", "1.0.0"]) == "v1.0"
    assert latest([]) is None
