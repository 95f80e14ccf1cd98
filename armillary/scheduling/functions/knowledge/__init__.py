"""What DHRT learns from live runs: times by size and node type, how a function scales, and its memory."""
