"""How people take these techniques into use."""

HOW = (
    "Record counters of clean and of failing runs, fit a `CorruptionDetector` on them, and let it read a `CounterSampler`;"
    " or wrap the matrix in an `AbftOperator`, which needs no training."
)
NO_ANSWERS = ("none",)
