"""The network whose nodes have clocks: links with delays, and the built-in shapes."""
