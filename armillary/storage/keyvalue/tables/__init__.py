"""What the tables share: keys as bits, layouts, buckets, the vector probe, and what every technique offers."""
