"""How fast a step is, and the floor it is measured against."""

from scommer.bench.timing import COHORTS, Bench, bench

__all__ = ["COHORTS", "Bench", "bench"]
