"""Text lines are sections, settings, notes or blank."""


def parse_line(line):
    """Return (kind, name, value) of one line."""
    line = line.strip()
    if line == "" or line[0] in ";!":
        return ("blank", None, None)
    if line.startswith("["):
        if not line.endswith("]"):
            raise ValueError("a section is not closed")
        return ("section", line[1:-1].strip(), None)
    name, equals, value = line.partition("=")
    if not equals:
        raise ValueError("a setting needs a value")
    return ("setting", name.strip().lower(), value.strip())


def parse(text, first="main"):
    """Return the sections of a text, each a dict of settings."""
    sections = {}
    current = first
    for line in text.split("\n"):
        kind, name, value = parse_line(line)
        if kind == "section":
            current = name
            sections.setdefault(name, {})
        elif kind == "setting":
            sections.setdefault(current, {})[name] = value
    return sections


def render(sections):
    """Return the text of sections, in sorted order."""
    lines = []
    for title in sorted(sections):
        lines.append(f"[{title}]")
        for key, entry in sorted(sections[title].items()):
            lines.append(f"{key} = {entry}")
    return "\n".join(lines)
