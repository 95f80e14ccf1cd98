"""AMQP 0-9-1 by the rules of two protocol files: frames, methods, a client, and a check of captured traffic."""
