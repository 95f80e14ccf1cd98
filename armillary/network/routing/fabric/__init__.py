"""The network: routers, groups, channels, and where they come from and go to."""
