"""Measure how fast a training step is, and the floor that it is compared with."""
