"""All configurations of communicating machines up to a bound on queues, and the same system for SPIN."""
