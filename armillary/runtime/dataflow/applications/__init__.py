"""The built-in programs, each as kernels with the data that they read and update."""
