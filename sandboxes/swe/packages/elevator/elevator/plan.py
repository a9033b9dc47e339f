"""Orders of stops."""


def sweep(floor, calls, upward=True):
    """Return the calls in one sweep in a direction and one back."""
    above = sorted(call for call in calls if call > floor)
    below = sorted([call for call in calls if call < floor], reverse=True)
    if upward:
        return above + below
    return below + above


def travel(floor, stops, open_time=0):
    """Return how many floors are passed on a way, plus the open times."""
    total = 0
    for stop in stops:
        total += abs(stop - floor) + open_time
        floor = stop
    return total


def nearest_lift(floors, floor, busy=()):
    """Return the index of the nearest lift that is not busy, or None."""
    best = None
    least = 0
    for number, place in enumerate(floors):
        if number in busy:
            continue
        distance = abs(place - floor)
        if best is None or distance < least:
            best = number
            least = distance
    return best
