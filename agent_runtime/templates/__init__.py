"""Chat templates with tools, one per model family, and the textual format for models whose template knows none."""
