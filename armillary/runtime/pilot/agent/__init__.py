"""The real pilot: what a task is, where it is placed, and the loop that starts tasks and hears of their ends."""
