"""What runs beside or inside a sandbox: behaviour only."""
