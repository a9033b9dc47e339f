"""Sandboxes as a client sees them."""
