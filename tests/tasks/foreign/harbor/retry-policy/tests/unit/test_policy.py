import unittest

from courier import Policy


class TestWaits(unittest.TestCase):
    def test_they_double_up_to_the_longest(self):
        self.assertEqual(list(Policy(attempts=6, first=1, longest=5).waits()), [1, 2, 4, 5, 5])

    def test_one_attempt_waits_never(self):
        self.assertEqual(list(Policy(attempts=1).waits()), [])

    def test_a_first_wait_beyond_the_longest_is_cut(self):
        self.assertEqual(list(Policy(attempts=3, first=9, longest=5).waits()), [5, 5])
