"""What is known before a run: the error of one measurement by its parts, the weighted diameter, and the bounds on skew."""
