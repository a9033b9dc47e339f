"""From fields to lines."""

from rowline.reader import split_line


def needs_quotes(field, comma=",", mark='"'):
    """Tell whether a field must be quoted."""
    if comma in field or mark in field:
        return True
    return field != field.strip()


def quote(field, mark='"'):
    """Return a field between marks, with its own marks doubled."""
    return mark + field.replace(mark, mark * 2) + mark


def join_fields(fields, comma=","):
    """Return the line of some fields; None is an empty field."""
    words = []
    for field in fields:
        word = "" if field is None else str(field)
        if needs_quotes(word, comma):
            word = quote(word)
        words.append(word)
    return comma.join(words)


def select_columns(lines, names, comma=","):
    """Return the lines with only the named columns, in that order."""
    head = split_line(lines[0], comma)
    places = [head.index(name) for name in names]
    chosen = []
    for line in lines:
        values = split_line(line, comma)
        chosen.append(join_fields([values[i] for i in places], comma))
    return chosen
