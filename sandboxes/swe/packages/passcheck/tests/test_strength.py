from passcheck import is_common, score


def test_is_common():
    assert is_common("Password1") is True
    assert is_common("12dragon") is True
    assert is_common("2024") is True
    assert is_common("dragonfly") is False
    assert is_common("tree7", ("tree",)) is True


def test_score_of_common():
    assert score("letmein123") == 0
    assert score("") == 0


def test_score():
    assert score("xkqwvzt") == 0
    assert score("xkqwvzty") == 1
    assert score("xkqwvztyxkqwv") == 1
    assert score("xkqwvztyxkqwvz") == 3
    assert score("Xkqwvztyxkqwv7") == 4


def test_score_of_series():
    assert score("Xkq7") == 1
    assert score("xkqw1234") == 0
    assert score("xkqwz123") == 1
    assert score("abcdx") == 0
