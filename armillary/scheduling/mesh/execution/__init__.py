"""Steps that really run on this machine."""
