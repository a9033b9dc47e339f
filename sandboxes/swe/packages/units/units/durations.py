"""Durations such as 1h 20m 5s."""

SECONDS = {"h": 3600, "m": 60, "s": 1}


def format_duration(total, short=False):
    """Write seconds as hours, minutes and seconds; short leaves zeros out."""
    if total < 0:
        raise ValueError("a duration is not negative")
    rest = total
    parts = []
    for name, size in SECONDS.items():
        count = rest // size
        rest = rest % size
        if count > 0 or not short:
            parts.append(str(count) + name)
    return " ".join(parts) or "0s"


def parse_duration(text):
    """Return the seconds of a duration; every unit may occur once."""
    seconds = 0
    seen = []
    for part in text.split():
        unit = part[-1]
        if unit not in SECONDS or unit in seen:
            raise ValueError("cannot read that part")
        seen.append(unit)
        seconds += int(part[:-1]) * SECONDS[unit]
    if not seen:
        raise ValueError("the duration is empty")
    return seconds
