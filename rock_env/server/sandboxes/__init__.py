"""The sandboxes of a server: their lives, records and checkpoints."""
