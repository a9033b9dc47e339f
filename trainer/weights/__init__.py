"""How new weights reach the inference engines."""
