"""A line of text with a history."""

from undo.stack import History


class Editor:
    """Changes a text; every change can be taken back."""

    def __init__(self, text="", limit=100):
        self.history = History(text, limit)

    def text(self):
        """Return the current text."""
        return self.history.state

    def insert(self, place, words):
        """Put words into the text before a place."""
        old = self.text()
        if place < 0 or place > len(old):
            raise ValueError("no such place")
        return self.history.push(old[:place] + words + old[place:])

    def delete(self, start, end):
        """Take a range out of the text and return it."""
        line = self.text()
        if start > end:
            start, end = end, start
        self.history.push(line[:start] + line[end:])
        return line[start:end]

    def replace(self, target, words, most=1):
        """Replace words and return how often; nothing found is no change."""
        found = min(self.text().count(target), most)
        self.history.push(self.text().replace(target, words, most))
        return found
