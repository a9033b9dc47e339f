"""Reward workers: who says what a rollout earned, where its environment does not. See docs/rewards.md."""
