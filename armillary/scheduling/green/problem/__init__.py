"""What is scheduled: nodes with their power, pods with their usage, and the sun over the site."""
