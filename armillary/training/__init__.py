"""Training large models: pipelines, sharding, checkpoints, and the rollouts of reinforcement learning."""
