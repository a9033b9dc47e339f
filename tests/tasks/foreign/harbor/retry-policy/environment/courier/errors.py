class DeliveryError(Exception):
    """The message did not arrive; trying again may help."""


class GaveUp(Exception):
    """All attempts failed."""

    def __init__(self, attempts):
        super().__init__(f"gave up after {attempts} attempts")
        self.attempts = attempts
