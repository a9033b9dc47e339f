"""Which rollouts to run, where they start, and the actors that run them."""
