from brackets import depths, max_depth, split_top


def test_depth_lists():
    assert depths("()x") == [1, 1, 0]
    assert depths("((a))") == [1, 2, 2, 2, 1]
    assert depths("{}[]") == [1, 1, 1, 1]


def test_deepest():
    assert max_depth("a[b{c(d)}]") == 3
    assert max_depth("()()") == 1
    assert max_depth("", 4) == 4
    assert max_depth("") == 0


def test_splits():
    assert split_top("[1,2],{3,4}") == ["[1,2]", "{3,4}"]
    assert split_top("one") == ["one"]
    assert split_top("a,,b") == ["a", "", "b"]
    assert split_top("(a b) c", " ") == ["(a b)", "c"]
