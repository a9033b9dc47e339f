"""From lines to fields and records."""


def split_line(line, comma=",", mark='"'):
    """Return the fields of a line; quoted fields may hold commas."""
    fields = []
    for piece in line.split(comma):
        if fields and is_open(fields[-1], mark):
            fields[-1] += comma + piece
        else:
            fields.append(piece)
    if is_open(fields[-1], mark):
        raise ValueError("a quote is not closed")
    return [unquote(field, mark) for field in fields]


def is_open(text, mark):
    """Tell whether a text holds an odd number of marks."""
    return text.count(mark) % 2 == 1


def unquote(text, mark):
    """Take the marks away from around a field and single the doubled."""
    text = text.strip()
    if len(text) < 2 or text[0] != mark:
        return text
    if text[-1] != mark:
        raise ValueError("text after a closing quote")
    return text[1:-1].replace(mark + mark, mark)


def to_records(lines, comma=","):
    """Return a dict for each line after the head line; skip blank lines."""
    head = split_line(lines[0], comma)
    records = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() == "":
            continue
        values = split_line(line, comma)
        if len(values) != len(head):
            raise ValueError(f"line {number} has {len(values)} fields")
        records.append(dict(zip(head, values, strict=True)))
    return records
