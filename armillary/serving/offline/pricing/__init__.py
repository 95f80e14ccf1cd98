"""Prices a layer on a device, and fits the linear latency model that planners use instead."""
