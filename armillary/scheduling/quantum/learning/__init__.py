"""How the policy of `ppo` is trained."""
