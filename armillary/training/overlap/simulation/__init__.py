"""Simulated time: schedules of workers, flags and flows, and how programs become schedules."""
