"""Ciphers that replace each letter on its own."""

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def rotate_letter(letter, shift):
    """Return the letter that is shift places further, around the alphabet."""
    place = ALPHABET.find(letter.lower())
    if place < 0:
        return letter
    other = ALPHABET[(place + shift) % 26]
    if letter.isupper():
        other = other.upper()
    return other


def rotate(text, shift=13):
    """Rotate every letter of text."""
    rotated = []
    for letter in text:
        rotated.append(rotate_letter(letter, shift))
    return "".join(rotated)


def mirror(text):
    """Swap a with z, b with y and so on."""
    mirrored = ""
    for symbol in text:
        index = ALPHABET.find(symbol.lower())
        if index >= 0:
            mirrored += rotate_letter(symbol, 25 - 2 * index)
        else:
            mirrored += symbol
    return mirrored
