"""Any agent becomes token-exact turns and trajectories."""
