from courier.errors import GaveUp


class Sender:
    def __init__(self, transport, policy, sleep):
        self._transport = transport
        self._policy = policy
        self._sleep = sleep

    def send(self, message):
        """Return the transport's receipt. Raise GaveUp after the last attempt."""
        tries = 0
        waits = self._policy.waits()
        while True:
            tries += 1
            try:
                return self._transport(message)
            except Exception as error:
                try:
                    wait = next(waits)
                except StopIteration:
                    raise GaveUp(tries) from error
                self._sleep(wait)
