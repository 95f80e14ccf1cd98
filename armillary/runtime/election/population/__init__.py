"""Populations of anonymous agents that meet at random: what a protocol is, who meets whom, and how a run is watched."""
