"""A classifier that keeps learning as data arrives."""

from scommer.lifelong.classifier import LifelongClassifier, NotLearned

__all__ = ["LifelongClassifier", "NotLearned"]
