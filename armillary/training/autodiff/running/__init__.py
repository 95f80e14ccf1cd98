"""How gradients are run and timed: ours in this process, peers in a process of their own."""
