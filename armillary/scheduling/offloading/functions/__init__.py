"""The published functions: their latencies on both backends, their sources, and the labelled corpus of the inspector."""
