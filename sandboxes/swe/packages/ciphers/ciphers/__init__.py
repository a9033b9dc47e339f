"""Classical ciphers on latin letters."""

from ciphers.keyword import decrypt, encrypt
from ciphers.letters import mirror, rotate, rotate_letter
from ciphers.rails import fence, rail_rows

__all__ = [
    "decrypt",
    "encrypt",
    "fence",
    "mirror",
    "rail_rows",
    "rotate",
    "rotate_letter",
]
