"""E2B's two APIs over our calls."""
