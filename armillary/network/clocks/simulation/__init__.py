"""Clocks in steps of one measuring period: what is measured, how oscillators wander, and what is seen of the skew."""
