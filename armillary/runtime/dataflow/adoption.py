"""How people take these techniques into use, and on which machines the question arises."""

HOW = (
    "Submit device work with `launch` or `Apis.add` inside a task graph, and run it with `Apis.run`, so that no thread waits for a device."
)
