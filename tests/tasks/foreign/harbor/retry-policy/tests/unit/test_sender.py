import os
import unittest

from courier import DeliveryError, GaveUp, Policy, Sender
from fakes import Flaky


class TestSender(unittest.TestCase):
    def send(self, transport, attempts=3):
        self.slept = []
        return Sender(transport, Policy(attempts=attempts, first=1, longest=10), self.slept.append).send(
            "hello"
        )

    def test_it_gives_up_after_the_last_attempt(self):
        transport = Flaky(99, DeliveryError())
        with self.assertRaises(GaveUp) as caught:
            self.send(transport)
        self.assertEqual((transport.calls, caught.exception.attempts), (3, 3))
        self.assertEqual(self.slept, [1, 2])

    def test_it_succeeds_on_the_last_attempt(self):
        self.assertEqual(self.send(Flaky(2, DeliveryError())), "receipt for hello")

    @unittest.skipUnless(os.environ.get("STRICT") == "yes", "only where checks are strict")
    def test_other_errors_are_not_retried(self):
        transport = Flaky(1, KeyError("key"))
        with self.assertRaises(KeyError):
            self.send(transport)
        self.assertEqual(transport.calls, 1)
