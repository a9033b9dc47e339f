class Flaky:
    """A transport that fails so often."""

    def __init__(self, failures, error):
        self.calls = 0
        self._failures = failures
        self._error = error

    def __call__(self, message):
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return f"receipt for {message}"
