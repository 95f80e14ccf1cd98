"""Running large models for others: adapters, tiers, failures, experts, deployment."""
