"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Give the counts of the router to a technique and load the experts in the order that it returns."
NEEDS = ("gpu",)
