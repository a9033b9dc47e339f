from wordcount import sentences, words


def test_found_words():
    assert words("It's 5 o'clock") == ["it's", "o'clock"]
    assert words("Rain-bow") == ["rain", "bow"]
    assert words("''x''") == ["x"]
    assert words("...") == []


def test_long_words():
    assert words("to be or not", 3) == ["not"]
    assert words("to be or not", minimum=2) == ["to", "be", "or", "not"]
    assert words("a dogs' bed", 4) == ["dogs"]
    assert words("'' so ''", 0) == ["so"]


def test_last_word():
    assert words("end") == ["end"]
    assert words("I") == ["i"]


def test_found_sentences():
    assert sentences("Hi! Who are you? Me.") == ["Hi", "Who are you", "Me"]
    assert sentences("") == []
    assert sentences("Yes. But") == ["Yes", "But"]
    assert sentences("?!") == []
    assert sentences("x/y/", "/") == ["x", "y"]
