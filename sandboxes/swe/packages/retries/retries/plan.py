"""What a schedule of delays leads to."""


def start_times(delays, start=0):
    """Return when each try starts; the first one starts at once."""
    times = [start]
    for delay in delays:
        times.append(times[-1] + delay)
    return times


def fit_budget(delays, budget):
    """Return the first delays whose sum stays within a budget."""
    kept = []
    left = budget
    for pause in delays:
        if pause > left:
            break
        kept.append(pause)
        left -= pause
    return kept


def retry_after(tries, delays, status, transient=(429, 503)):
    """Return the delay before the next try, or None to give up."""
    if tries < 1:
        raise ValueError("a first try is needed")
    if status not in transient or tries > len(delays):
        return None
    return delays[tries - 1]


def play(outcomes, delays):
    """Return (worked, tries, waited) for known outcomes of the tries."""
    waited = 0
    tries = 0
    for worked in outcomes[: len(delays) + 1]:
        if worked:
            return (True, tries + 1, waited)
        if tries < len(delays):
            waited += delays[tries]
        tries += 1
    return (False, tries, waited)
