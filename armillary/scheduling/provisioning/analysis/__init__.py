"""What each stage of SoCL brings, how much a start helps HiGHS, and what happens when a node fails."""
