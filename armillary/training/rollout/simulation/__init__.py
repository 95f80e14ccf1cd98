"""A rollout and its steps in simulated time: the machine, instances that batch, generation, and the figures of an epoch."""
