"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Write and read steps through `Layer` of armillary.network.transport, with ADIOS2 underneath."
