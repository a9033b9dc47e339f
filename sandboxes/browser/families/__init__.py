"""The tasks, a module for each site: they draw a site's first state and say what is wanted of it."""
