from brackets import depths, max_depth, split_top


def test_depths():
    assert depths("a(b)c") == [0, 1, 1, 1, 0]
    assert depths("[{}]") == [1, 2, 2, 1]
    assert depths("") == []


def test_max_depth():
    assert max_depth("f(g(x), y)") == 2
    assert max_depth("abc") == 0
    assert max_depth("") == 0
    assert max_depth("", default=9) == 9


def test_split_top():
    assert split_top("a,b") == ["a", "b"]
    assert split_top("f(1,2),g") == ["f(1,2)", "g"]
    assert split_top("a;b,c", ";") == ["a", "b,c"]
    assert split_top(",") == ["", ""]
    assert split_top("a,b,c") == ["a", "b", "c"]
