"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Use `DedupStore`, or relocate an existing store with `relocation_plan`; fsspec knows it as `dedup`."
