"""Who calls and what they may: tokens, their file, TLS."""
