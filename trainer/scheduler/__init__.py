"""Plans become groups, groups rollouts, and rollouts batches: sampled as far ahead of the learner as the lag allows.

`queue` knows where every rollout is, `collector` makes a plan's batch of those that finished, `journal` writes down what was
planned, finished and consumed, `sampling` moves all three, and `beside` does so on a thread of its own while the loop
learns. Nothing here talks to Ray, to an environment or to a clock on a wall, so that the simulator runs the very same code.
"""
