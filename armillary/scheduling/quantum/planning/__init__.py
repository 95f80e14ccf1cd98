"""What a scheduler knows and decides before anything runs: estimates, placements, plans."""
