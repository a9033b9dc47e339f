"""The store in PostgreSQL, shared by several servers."""
