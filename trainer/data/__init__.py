"""From trajectories to tensors."""
