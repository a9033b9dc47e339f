"""The `coder` engine: a small policy for software tasks."""
