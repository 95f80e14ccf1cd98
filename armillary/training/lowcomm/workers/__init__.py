"""What a worker does: its inner optimizer, the loop over steps and stages, and its checkpoints."""
