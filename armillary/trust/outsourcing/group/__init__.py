"""The group ristretto255: its field, points, encodings, and multiplication by secrets."""
