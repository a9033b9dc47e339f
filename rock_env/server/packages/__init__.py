"""The package mirror that boxes may ask: PyPI, Debian and npm, fetched once, checked, and served from the disk."""
