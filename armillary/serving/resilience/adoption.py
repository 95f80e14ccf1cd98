"""How people take these techniques into use, and on which machines the question arises."""

HOW = "The layout and the recovery plan of `FailSafe` belong into the engine; `serve_through_loss` shows them on a small one."
NEEDS = ("gpu",)
