from webquery import build_query, parse_query


def test_repeated():
    assert parse_query("k=2&k=1&k=2") == {"k": ["2", "1", "2"]}
    assert parse_query("k%20k=v%26v") == {"k k": ["v&v"]}
    assert parse_query("a=b=c&&d") == {"a": ["b=c"], "d": [""]}


def test_without_blanks():
    assert parse_query("k=&l=1&m", keep_blank=False) == {"l": ["1"]}
    assert parse_query("k=&k=1", keep_blank=False) == {"k": ["1"]}
    assert parse_query("k=&k=1") == {"k": ["", "1"]}


def test_building():
    assert build_query({}) == ""
    assert build_query({"z": "", "y": 0}) == "y=0&z="
    assert build_query({"p q": ["a b", "c&d"]}) == "p+q=a+b&p+q=c%26d"
    assert build_query({"n": [], "m": None, "l": [None, 1]}) == "l=1"


def test_there_and_back():
    params = {"a": ["1", "2"], "b c": ["=&"]}
    assert parse_query(build_query(params)) == params
