"""What the placements share: which adapter goes where, and the trial of a placement in the simulator."""
