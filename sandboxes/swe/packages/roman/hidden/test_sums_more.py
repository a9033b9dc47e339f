from roman import add, largest, ordered


def test_add_more():
    assert add("V") == "V"
    assert add("XL", "X", "C") == "CL"


def test_largest_more():
    assert largest(["L", "C", "XC"]) == "C"
    assert largest(["v", "V", "I"]) == "v"
    assert largest([]) is None


def test_ordered_more():
    assert ordered(["M", "D", "C"]) == ["C", "D", "M"]
    assert ordered(["IV", "IX", "I"], True) == ["IX", "IV", "I"]
