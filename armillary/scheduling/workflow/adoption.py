"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give the workflow as WfFormat to `Planner`, and let your engine follow the placement that it writes."
