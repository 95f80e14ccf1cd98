"""The world of a schedule: users, links, clocks, the simulator, and what really happened."""
