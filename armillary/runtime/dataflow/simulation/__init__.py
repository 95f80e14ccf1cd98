"""Programs that are described by a file, played in simulated time."""
