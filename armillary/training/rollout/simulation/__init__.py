"""A rollout and its steps in simulated time: the machine, the instances, generation, and the figures of an epoch."""
