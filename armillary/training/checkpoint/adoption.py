"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give the shape of the model to `MoeRckpt`; its plan says what each rank keeps, sends and writes in each iteration."
NEEDS = (
    "gpu",
    "nodes",
)
NO_ANSWERS = ("none",)
