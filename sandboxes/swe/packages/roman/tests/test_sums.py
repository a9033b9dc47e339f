from roman import add, largest, ordered


def test_add():
    assert add("X", "IV") == "XIV"
    assert add("I", "I", "I") == "III"


def test_largest():
    assert largest(["II", "IX", "V"]) == "IX"
    assert largest(["I"]) == "I"
    assert largest(["x", "X"]) == "x"
    assert largest([]) is None


def test_ordered():
    assert ordered(["X", "I", "V"]) == ["I", "V", "X"]
    assert ordered(["I", "X"], descending=True) == ["X", "I"]
