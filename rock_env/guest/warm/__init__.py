"""The warm interpreter of a box, and the client that asks it."""
