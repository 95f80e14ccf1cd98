"""What every placement policy is given and must answer."""
