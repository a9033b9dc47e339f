from releases import compare, latest, sort_key


def test_keys():
    texts = ["2.0", "2.0-a.b", "2.0-a.9", "2.0-a.11", "2.0-a", "0.3", "2.0-7"]
    ordered = ["0.3", "2.0-7", "2.0-a", "2.0-a.9", "2.0-a.11", "2.0-a.b", "2.0"]
    assert sorted(texts, key=sort_key) == ordered
    assert sort_key("v1.2") == sort_key("1.2.0")


def test_comparing():
    assert compare("0.9", "0.10") == -1
    assert compare("0.10", "0.9") == 1
    assert compare("v3", "3.0") == 0
    assert compare("3.0.0-rc", "3.0.0") == -1
    assert compare("1.9.9", "2.0.0") == -1
    assert compare("2.0.9", "2.1.0") == -1


def test_newest():
    assert latest(["3.0-a", "2.0-b"]) is None
    assert latest(["3.0-a", "3.0-b", "2.9"], stages=True) == "3.0-b"
    assert latest(["0.1", "0.2", "v0.2", "0.0.9"]) == "0.2"
    assert latest(["5.0", "5.0-rc"], stages=True) == "5.0"
