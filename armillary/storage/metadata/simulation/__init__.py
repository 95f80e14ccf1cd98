"""The device, the engines' accesses to it, and the clients that wait for both."""
