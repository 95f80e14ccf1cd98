"""Bytes made small: numbers, words, and the compressors behind them."""
