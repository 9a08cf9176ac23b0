"""SLDA (Hayes and Kanan, 2020): streaming linear discriminant analysis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from scommer.errors import UsageError, within
from scommer.methods.ncm import NCM, varies

MAX_FEATURES = 16_384  # whose covariance takes 2 GiB


@dataclass(frozen=True)
class SLDA(NCM):
    """Linear discriminant analysis: class means, and one covariance Σ for all classes, which are equally likely.

    Like NCM, with the correlations in Σ multiplied by 1 - s instead of diag(σ²). If `shrinkage` is not given, s is the
    oracle approximating shrinkage (OAS) of Chen et al. (2010) for the standardised features. It follows from Σ and the
    number of rows: large while they are few, so that noise does not decide, and near 0 in the end.
    """

    shrinkage: float | None = None  # s, how much correlations are shrunk; none: by OAS, from the rows seen so far

    label: ClassVar[str] = "SLDA"
    colour: ClassVar[str] = "#E7298A"

    def __post_init__(self) -> None:
        if self.shrinkage is not None:
            within(self, 1e-9, 1, "shrinkage")  # 0 would not do for a feature that is constant

    def _scatter_shape(self, features: int) -> tuple[int, ...]:
        if features > MAX_FEATURES:
            raise UsageError(
                f"slda needs the covariance of {features} features, more than {MAX_FEATURES}: "
                "give embeddings or smaller images, or choose the method ncm"
            )
        return features, features

    def _scatter(self, deviations: Tensor) -> Tensor:
        return deviations.T @ deviations

    def _discriminant(self, offset: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        n, features = state["rows"], offset.shape[1]
        covariance = state["scatter"] / n
        varying = varies(covariance.diagonal(), state["mean"])
        std = torch.where(varying, covariance.diagonal(), 1.0).sqrt()
        correlation = covariance / std / std[:, None] * (varying & varying[:, None])
        variance = correlation.trace() / features  # 1, or less if some features are constant
        s = _oas(correlation, variance, n) if self.shrinkage is None else self.shrinkage
        shrunk = (1 - s) * correlation
        shrunk.diagonal().add_(s * torch.where(variance > 0, variance, 1.0))
        return torch.cholesky_solve((offset / std).T, torch.linalg.cholesky(shrunk)).T / std


def _oas(covariance: Tensor, variance: Tensor, n: Tensor) -> Tensor:
    """Return Chen et al.'s shrinkage for n rows; 1 if the covariance is a multiple of I."""
    square = covariance.square().mean()
    excess = (n + 1) * (square - variance.square() / len(covariance))
    return torch.where(excess > 0, (square + variance.square()) / excess, 1.0).clamp(max=1)
