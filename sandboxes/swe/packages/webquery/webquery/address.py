"""Whole addresses such as 'shop.example/list?page=2'."""

from webquery.query import build_query, parse_query


def split_address(address):
    """Return (host, path, query) of an address without a scheme."""
    rest, _, query = address.partition("?")
    host, slash, path = rest.partition("/")
    if host == "":
        raise ValueError("an address needs a host")
    return (host, slash + path, query)


def get_param(address, name, default=None, last=False):
    """Return the first or last value of a name in the query."""
    values = parse_query(split_address(address)[2]).get(name, [])
    if not values:
        return default
    return values[-1] if last else values[0]


def set_param(address, key, value):
    """Return the address with one value for a name; None removes it."""
    host, path, query = split_address(address)
    params = parse_query(query)
    params[key] = [value]
    text = build_query(params)
    return host + path + ("?" + text if text else "")
