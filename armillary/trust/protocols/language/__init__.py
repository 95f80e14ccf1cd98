"""The language of protocol files: tokens, grammar, and the graph that a protocol is."""
