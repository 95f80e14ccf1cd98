"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Write the durations that the policy decides into Knative's or OpenFaaS's annotations; `knative` and `openfaas` make them."
