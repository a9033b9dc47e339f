"""ROCK: sandboxes and environments as a service. Knows nothing about learning."""
