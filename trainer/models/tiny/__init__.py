"""The `tiny` engine: a transformer from scratch for text games."""
