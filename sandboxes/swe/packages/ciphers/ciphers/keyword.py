"""The key word cipher: each letter of the key is a shift."""

from ciphers.letters import ALPHABET, rotate_letter


def key_shifts(key):
    """Return the shifts of a key word: a is 0, b is 1 and so on."""
    shifts = []
    for letter in key.lower():
        place = ALPHABET.find(letter)
        if place == -1:
            raise ValueError("the key may hold letters only")
        shifts.append(place)
    if not shifts:
        raise ValueError("the key is empty")
    return shifts


def encrypt(text, key, direction=1):
    """Shift each letter by the key's next letter; others do not use it up."""
    shifts = key_shifts(key)
    used = 0
    output = []
    for character in text:
        if character.lower() in ALPHABET:
            amount = shifts[used % len(shifts)]
            output.append(rotate_letter(character, direction * amount))
            used += 1
        else:
            output.append(character)
    return "".join(output)


def decrypt(secret, key):
    """Undo encrypt() with the same key."""
    return encrypt(secret, key, direction=-1)
