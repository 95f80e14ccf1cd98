"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Build a `Plan` once per mesh and call `Assembler` in every step; `choose` picks the kernel."
