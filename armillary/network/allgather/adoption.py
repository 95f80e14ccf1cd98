"""How people take these techniques into use, and on which machines the question arises."""

HOW = (
    "Give the communicator's neighbours to a plan of armillary.network.allgather and call it in place of "
    "`MPI_Neighbor_allgather`; `Auto` chooses the plan."
)
NEEDS = ("nodes",)
