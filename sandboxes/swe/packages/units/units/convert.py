"""The table of units, and conversion by it."""

TABLE = {
    "length": {"mm": 1, "cm": 10, "m": 1000, "km": 1000000},
    "weight": {"g": 1, "kg": 1000, "t": 1000000},
    "time": {"s": 1, "min": 60, "h": 3600, "d": 86400},
}


def kind_of(unit, default=None):
    """Return what a unit measures, or default for an unknown unit."""
    for kind, factors in TABLE.items():
        if unit in factors:
            return kind
    return default


def convert(value, source, target):
    """Return value, given in the unit source, in the unit target."""
    measure = kind_of(source)
    if measure is None:
        raise ValueError("unknown unit")
    if kind_of(target) != measure:
        raise ValueError("the units measure different things")
    scale = TABLE[measure]
    return value * scale[source] / scale[target]


def temperature(degrees, source="C", target="F"):
    """Convert between C, F and K."""
    if source == "F":
        degrees = (degrees - 32) * 5 / 9
    elif source == "K":
        degrees = degrees - 273
    if target == "F":
        return degrees * 9 / 5 + 32
    return degrees + 273 if target == "K" else degrees
