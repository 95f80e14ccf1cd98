"""Where a policy is used in a real program: as a Python mapping, and as a plug-in of libCacheSim."""
