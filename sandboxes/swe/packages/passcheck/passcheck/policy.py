"""Rules that a password must keep."""

from passcheck.signs import count_classes, longest_run


class Policy:
    """Bounds on length, kinds of signs and repetition."""

    def __init__(self, shortest=8, classes=2, repeat=3, longest=64):
        if shortest > longest:
            raise ValueError("shortest is above longest")
        self.shortest = shortest
        self.longest = longest
        self.classes = classes
        self.repeat = repeat

    def problems(self, password, user=""):
        """Return the words for everything that is wrong."""
        found = []
        if len(password) < self.shortest:
            found.append("too short")
        if len(password) > self.longest:
            found.append("too long")
        if count_classes(password) < self.classes:
            found.append("too plain")
        if longest_run(password) > self.repeat:
            found.append("repeats")
        if user and user.lower() in password.lower():
            found.append("holds the name")
        return found

    def allows(self, password, user="", old=()):
        """Tell whether a password is new and has no problems."""
        if password in old:
            return False
        return not self.problems(password, user)
