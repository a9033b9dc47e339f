from ciphers import mirror, rotate, rotate_letter


def test_rotate_letter():
    assert rotate_letter("a", 1) == "b"
    assert rotate_letter("z", 1) == "a"
    assert rotate_letter("B", 3) == "E"
    assert rotate_letter("c", -3) == "z"


def test_rotate_letter_other():
    assert rotate_letter("?", 5) == "?"
    assert rotate_letter("4", 1) == "4"


def test_rotate():
    assert rotate("Hello, you", 3) == "Khoor, brx"
    assert rotate("abc") == "nop"
    assert rotate("") == ""


def test_mirror():
    assert mirror("az") == "za"
    assert mirror("Big Cat") == "Yrt Xzg"
    assert mirror("m-n") == "n-m"
