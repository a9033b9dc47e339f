"""Images by name: builds, their records, their cache and their gate."""
