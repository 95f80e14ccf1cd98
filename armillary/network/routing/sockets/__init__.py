"""Files of other tools: BookSim, OTF2."""
