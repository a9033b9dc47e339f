"""Split texts into words and sentences."""


def words(text, minimum=1):
    """Return the lower-case words of at least minimum letters, in order."""
    cleaned = ""
    for character in text.lower():
        if character.isalpha() or character == "'":
            cleaned += character
        else:
            cleaned += " "
    found = []
    for piece in cleaned.split():
        word = piece.strip("'")
        if word and len(word) >= minimum:
            found.append(word)
    return found


def sentences(text, marks=".!?"):
    """Return the sentences, stripped and without their end marks."""
    parts = []
    start = 0
    for index, letter in enumerate(text):
        if letter in marks:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]
