"""What policies plan with: the reservation of one job, and a profile of free nodes over time."""
