"""What planners share: layers and their division over ranks, exact partitions, and how many micro-batches are in flight."""
