"""What DDRM learns: a predictor of violations and a policy, and what they see."""
