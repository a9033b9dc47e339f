"""Built-in environments; plugins that nobody imports."""
