"""Models: each ties a sampler and a learner together under one name of the group `ale.engines`."""
