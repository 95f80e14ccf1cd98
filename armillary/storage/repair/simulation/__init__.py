"""Plans carried out in simulated time and on real bytes."""
