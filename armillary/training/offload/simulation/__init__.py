"""Schedules of moves, and the seconds that they take."""
