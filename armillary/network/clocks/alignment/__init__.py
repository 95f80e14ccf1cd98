"""Real clocks: offsets from exchanges of time stamps, the clocks of live ranks, and traces put on one clock."""
