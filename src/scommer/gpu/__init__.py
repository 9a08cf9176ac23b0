"""CUDA graphs, side streams, compilation and Triton kernels: what makes a training step fast on a GPU."""
