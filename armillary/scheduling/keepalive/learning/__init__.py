"""How LACE-RL is trained: replays of training days, and the learner on them."""
