"""Virtual ranks that keep pace with the loop, so that events can interrupt what they do."""
