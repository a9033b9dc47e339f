"""The query of an address: names and values joined by '&'."""

from webquery.escape import decode, encode


def parse_query(query, keep_blank=True):
    """Return the list of values for each name."""
    found = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name == "" or (value == "" and not keep_blank):
            continue
        found.setdefault(decode(name), []).append(decode(value))
    return found


def build_query(params):
    """Return the query of a dict; a list stands for a repeated name."""
    pairs = []
    for name in sorted(params):
        values = params[name]
        if not isinstance(values, list):
            values = [values]
        for value in values:
            if value is not None:
                pairs.append(encode(name) + "=" + encode(str(value)))
    return "&".join(pairs)
