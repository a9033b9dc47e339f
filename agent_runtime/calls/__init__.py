"""The tree of a session's calls: what a history continues, what each call was for, the record."""
