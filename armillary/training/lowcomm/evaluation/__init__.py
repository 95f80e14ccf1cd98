"""How a trained model is judged: loss, tasks, and how far it is from the model that data parallelism gives."""
