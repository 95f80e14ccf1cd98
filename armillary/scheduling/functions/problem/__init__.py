"""What is given: node types, functions, calls with deadlines, and how long a call really takes."""
