"""The templates of the tasks, one module per family."""
