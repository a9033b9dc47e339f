"""`ale algo`: the installed algorithms."""
