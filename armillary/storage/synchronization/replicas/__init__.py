"""What the protocols share: versions, snapshots, merges, and how replicas tell each other."""
