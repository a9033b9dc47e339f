"""Read the file format."""

from runorder.errors import ParseError


def parse(text: str) -> dict[str, list[str]]:
    """Return what each task needs, in the order of the file. `#` starts a comment."""
    needs: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        name, colon, rest = line.partition(":")
        name = name.strip()
        if not colon or not name or " " in name:
            raise ParseError(f"line {number}: expected 'name: needs ...', got {line!r}")
        if name in needs:
            raise ParseError(f"line {number}: task {name!r} is defined twice")
        needs[name] = rest.split()
    return needs
