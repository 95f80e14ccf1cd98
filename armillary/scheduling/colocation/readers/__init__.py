"""Files of instances and servers."""
