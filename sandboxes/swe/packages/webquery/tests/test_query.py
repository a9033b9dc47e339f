from webquery import build_query, parse_query


def test_parse_query():
    assert parse_query("a=1&b=2&a=3") == {"a": ["1", "3"], "b": ["2"]}
    assert parse_query("q=x+y%3D") == {"q": ["x y="]}
    assert parse_query("a+b=1") == {"a b": ["1"]}
    assert parse_query("") == {}


def test_blank_values():
    assert parse_query("a&b=&c=1") == {"a": [""], "b": [""], "c": ["1"]}
    assert parse_query("a&b=&c=1", False) == {"c": ["1"]}
    assert parse_query("&&c=1=2&") == {"c": ["1=2"]}


def test_build_query():
    assert build_query({"b": 2, "a": "x y"}) == "a=x+y&b=2"
    assert build_query({"n": [1, None, 3]}) == "n=1&n=3"
    assert build_query({"a&b": ""}) == "a%26b="
    assert build_query({"gone": None}) == ""
