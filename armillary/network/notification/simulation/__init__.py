"""How a scenario is played on virtual ranks under a policy of progress."""
