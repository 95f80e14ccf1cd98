"""The devices: their SMs, links and the mechanisms that move data between them."""
