from ciphers import mirror, rotate, rotate_letter


def test_letters_around():
    assert rotate_letter("y", 4) == "c"
    assert rotate_letter("A", -1) == "Z"
    assert rotate_letter("a", 0) == "a"
    assert rotate_letter("m", 26) == "m"


def test_no_letters():
    assert rotate_letter("!", 2) == "!"
    assert rotate("3 + 4", 7) == "3 + 4"


def test_rotate_twice():
    assert rotate(rotate("Some Words")) == "Some Words"
    assert rotate("Xyz", 2) == "Zab"
    assert rotate("day", -1) == "czx"


def test_mirror_twice():
    assert mirror(mirror("Quiet, please")) == "Quiet, please"
    assert mirror("abc") == "zyx"
    assert mirror("A1") == "Z1"
