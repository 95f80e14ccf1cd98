"""Servers that cheat: forged answers on ristretto255, and the best forger on a group small enough to count."""
