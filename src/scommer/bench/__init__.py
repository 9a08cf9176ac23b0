"""Measure how fast a training step is, and the floor that it is compared with."""

from scommer.bench.timing import COHORTS, Bench, bench

__all__ = ["COHORTS", "Bench", "bench"]
