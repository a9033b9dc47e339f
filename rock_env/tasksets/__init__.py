"""Task formats of others, read as they are into one kind of task, and the environment that plays such tasks."""
