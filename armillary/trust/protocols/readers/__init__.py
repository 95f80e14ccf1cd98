"""Files of other people: machines in JSON or DOT, and logs of events."""
