from passcheck import is_common, score


def test_common():
    assert is_common("99WELCOME99") is True
    assert is_common("") is True
    assert is_common("welc0me") is False
    assert is_common("oak1", words=["oak"]) is True
    assert is_common("dragon", words=["oak"]) is False


def test_weak():
    assert score("Dragon2") == 0
    assert score("12345678901234567890") == 0
    assert score("zebra") == 0
    assert score("zebras!") == 0


def test_middle():
    assert score("zebras!!") == 1
    assert score("Zebra!") == 1
    assert score("Zebras!!") == 2
    assert score("zebra!zebra!z") == 1


def test_strong():
    assert score("zebra!zebra!ze") == 3
    assert score("zebra!Zebra!ze") == 4
    assert score("zebra!Zebra!1234") == 3
    assert score("zebra!Zebra!123z") == 4
    assert score("zebra!zebra!abcd") == 2
