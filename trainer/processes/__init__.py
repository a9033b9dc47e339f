"""The processes of a run and where they are placed: learner, samplers, rollout workers, reward workers, on Ray."""
