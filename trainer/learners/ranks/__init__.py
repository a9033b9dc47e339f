"""A learner spread over several processes: its ranks, and what deals a batch among them."""
