"""A unittest file that ends with a summary in pytest's form, which is what the harness reads."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent


class TestSquare(unittest.TestCase):
    def setUp(self):
        self.words = (HERE / "words.txt").read_text().split()
        self.rows = Path("square.txt").read_text().split()

    def test_words_are_untouched(self):
        self.assertEqual(Path("words.txt").read_text().split(), self.words)

    def test_shape_and_first_row(self):
        self.assertEqual([len(row) for row in self.rows], [4, 4, 4, 4])
        self.assertEqual(self.rows[0], "card")

    def test_rows_are_different_words(self):
        self.assertEqual(len(set(self.rows)), 4)
        self.assertLessEqual(set(self.rows), set(self.words))

    def test_columns_are_the_rows(self):
        self.assertEqual(["".join(column) for column in zip(*self.rows)], self.rows)


class Result(unittest.TextTestResult):
    lines = []

    def stopTest(self, test):
        bad = {case.id() for case, _ in self.failures + self.errors}
        name = test.id().split(".")[-1]
        self.lines.append(f"{'FAILED' if test.id() in bad else 'PASSED'} {__file__}::TestSquare::{name}")
        super().stopTest(test)


if __name__ == "__main__":
    program = unittest.main(exit=False, testRunner=unittest.TextTestRunner(sys.stdout, resultclass=Result))
    print("\n========== short test summary info ==========")
    print("\n".join(Result.lines))
    sys.exit(not program.result.wasSuccessful())
