"""One GPU that serves adapters: the engine in the simulator, its twin, the forest distilled from the twin, and measured runs."""
