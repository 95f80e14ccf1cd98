"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give exports of Nsight Systems or traces of PyTorch's profiler to `armillary compare observability/traces --work`."
NEEDS = ("gpu",)
