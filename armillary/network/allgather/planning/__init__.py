"""What the techniques plan with: messages of blocks, the places of blocks in memory, and the model of their time."""
