"""The judge: a plan run through its pipeline event by event."""
