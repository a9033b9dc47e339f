"""What comes next and what is allowed."""

from releases.order import compare
from releases.version import parse_version, show


def bump(text, part="patch"):
    """Return the next version after raising one part."""
    major, minor, patch, stage = parse_version(text)
    if part == "major":
        return show((major + 1, 0, 0, ""))
    if part == "minor":
        return show((major, minor + 1, 0, ""))
    if part != "patch":
        raise ValueError(f"no such part: {part}")
    if not stage:
        patch += 1
    return show((major, minor, patch, ""))


def is_breaking(old, new):
    """Tell whether an update may break users: major, or minor below 1."""
    before = parse_version(old)
    after = parse_version(new)
    if before[0] == 0 and after[0] == 0:
        return before[1] != after[1]
    return before[0] != after[0]


def matches(text, rule):
    """Tell whether a version keeps a rule such as '>=1.2' or '^1.2'."""
    if rule.startswith(">="):
        return compare(text, rule[2:]) >= 0
    if rule.startswith("<"):
        return compare(text, rule[1:]) < 0
    if rule.startswith("^"):
        base = rule[1:]
        return compare(text, base) >= 0 and not is_breaking(base, text)
    return compare(text, rule) == 0
