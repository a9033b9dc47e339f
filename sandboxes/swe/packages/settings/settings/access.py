"""Typed answers from parsed sections."""

YES = ("yes", "on", "true", "1")
NO = ("no", "off", "false", "0")


def lookup(sections, section, name, default=None):
    """Return a setting of a section, else of 'main', else the default."""
    if name in sections.get(section, {}):
        return sections[section][name]
    return sections.get("main", {}).get(name, default)


def as_int(text, low=None, high=None):
    """Return a text as a whole number within bounds."""
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"not a whole number: {text}") from None
    if low is not None and number < low:
        raise ValueError("number is too small")
    if high is not None and number > high:
        raise ValueError("number is too large")
    return number


def as_bool(text):
    """Return a text such as 'yes' or 'off' as True or False."""
    word = text.strip().lower()
    if word not in YES + NO:
        raise ValueError(f"neither yes nor no: {text}")
    return word in YES


def merge(base, extra):
    """Return sections of two parses; the extra ones win."""
    merged = {section: dict(values) for section, values in base.items()}
    for section, values in extra.items():
        merged.setdefault(section, {}).update(values)
    return merged
