"""How the streams of a log are compressed: numbers, words, and the compressors behind them."""
