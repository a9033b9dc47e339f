"""The server's end of a guest: one link, and everything a box does by way of it."""
