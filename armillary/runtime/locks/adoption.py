"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Take `HapaxMutex` in place of `threading.Lock`, or `HapaxLock` inside compiled loops."
