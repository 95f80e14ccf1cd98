"""Regions of configurations: the tree, its selection by separation, and the rules of its leaves."""
