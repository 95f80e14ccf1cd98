"""Sums of many multiples, and inner products modulo the order of the group."""
