"""Intervals of a meter, the time of each type of task inside them, and the power that follows."""
