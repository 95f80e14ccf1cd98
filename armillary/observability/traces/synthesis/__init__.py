"""Programs with planted losses, simulated on ranks with a GPU each, and written as exports."""
