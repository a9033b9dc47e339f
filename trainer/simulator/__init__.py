"""A run's scheduler in virtual time: how long steps take, who stands still, and what bounds them, without playing anything.

`clock` is an event loop whose time is virtual, `fleet` says how long everything takes, `parts` are the simulated sampler,
environments, weights and plans, and `run` lets them move `trainer.scheduler`, imported as it is, with a simulated learner.
`recorded` measures a fleet by a run's records. Nothing here sleeps, and everything is a function of the run's seed.
"""
