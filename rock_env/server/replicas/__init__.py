"""Several servers that share a store."""
