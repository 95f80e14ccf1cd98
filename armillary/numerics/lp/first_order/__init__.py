"""What the first-order methods share: scaling, compiled steps, the place where the numbers are, and the loop of the analogue method."""
