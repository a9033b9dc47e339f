"""`ale model`: models by name, and how they come onto this machine."""
