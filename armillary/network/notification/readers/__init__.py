"""Scenarios (TOML) and message traces (CSV) of a user."""
