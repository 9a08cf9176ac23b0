"""What makes a step fast on a GPU; a CPU needs none of it."""
