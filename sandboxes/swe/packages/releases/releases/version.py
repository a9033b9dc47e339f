"""A version is (major, minor, patch, stage); the stage may be empty."""


def parse_version(text):
    """Return the version written in a text; missing parts are zero."""
    core, _, stage = text.strip().removeprefix("v").partition("-")
    parts = core.split(".")
    if len(parts) > 3:
        raise ValueError("too many parts")
    numbers = []
    for part in parts:
        if not part.isdigit():
            raise ValueError(f"not a number: {part}")
        numbers.append(int(part))
    major, minor, patch = [*numbers, 0, 0][:3]
    return (major, minor, patch, stage)


def show(version, prefix=""):
    """Return the text of a version."""
    major, minor, patch, stage = version
    text = f"{prefix}{major}.{minor}.{patch}"
    if stage:
        text += "-" + stage
    return text
