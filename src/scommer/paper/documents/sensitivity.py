"""The paper's sensitivity table: 27 settings, their scores here and in the paper, and additive fits to them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from scommer.paper import tables
from scommer.paper.documents.runs import Paired
from scommer.runs import presets


class Levels(NamedTuple):
    """A setting: one level of each hyperparameter."""

    r: float
    k: float  # share of active units in the last stage
    pi_s: float


def levels_of(settings: Mapping[str, Any]) -> Levels:
    """Return the levels that a run with these settings has."""
    return Levels(settings["r"], settings["active"][-1], settings["pi_s"])


def preset_levels() -> Levels:
    """Return the setting that the main table has."""
    return levels_of(presets.settings("s-cifar10", "scommer", 200))


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Grid:
    """A score for each setting."""

    scores: dict[Levels, float]

    @property
    def values(self) -> list[float]:
        """All scores."""
        return list(self.scores.values())

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.values)

    @property
    def best(self) -> Levels:
        """The setting with the highest score."""
        return max(self.scores, key=self.scores.__getitem__)

    @property
    def preset(self) -> float:
        """The score of the preset."""
        return self.scores[preset_levels()]

    @property
    def rank_of_preset(self) -> int:
        """1 if no setting scores higher than the preset."""
        return 1 + sum(v > self.preset for v in self.values)

    @property
    def without_preset(self) -> "Grid":
        """All settings but the preset."""
        return Grid({at: v for at, v in self.scores.items() if at != preset_levels()})

    def at(self, r: float, k: float, pi_s: float) -> float:
        """Return the score of one setting."""
        return self.scores[Levels(r, k, pi_s)]

    def where(self, **levels: float) -> "Grid":
        """Return the settings with these levels."""
        return Grid({at: v for at, v in self.scores.items() if all(getattr(at, n) == x for n, x in levels.items())})

    def levels(self, name: str) -> list[float]:
        """Return the levels of a hyperparameter."""
        return sorted({getattr(at, name) for at in self.scores})

    def trend(self, name: str) -> float:
        """Return by how much the mean scores of a hyperparameter's levels differ."""
        means = [self.where(**{name: level}).mean for level in self.levels(name)]
        return max(means) - min(means)

    @property
    def largest_step(self) -> float:
        """The largest difference between settings that are neighbours: one level apart in one hyperparameter."""
        place = {name: {level: i for i, level in enumerate(self.levels(name))} for name in Levels._fields}

        def distance(a: Levels, b: Levels) -> int:
            return sum(abs(place[n][getattr(a, n)] - place[n][getattr(b, n)]) for n in Levels._fields)

        return max(abs(v - w) for a, v in self.scores.items() for b, w in self.scores.items() if distance(a, b) == 1)

    @cached_property
    def fit(self) -> "Fit":
        """The additive model: the preset's score, plus an effect of every level that is not the preset's."""
        columns = [(n, x) for n in Levels._fields for x in self.levels(n) if x != getattr(preset_levels(), n)]
        x = np.array([[1.0, *(getattr(at, n) == level for n, level in columns)] for at in self.scores])
        y = np.array(self.values)
        coefficients, *_ = np.linalg.lstsq(x, y)
        left = y - x @ coefficients
        freedom = len(y) - x.shape[1]
        variance = (left**2).sum() / freedom
        errors = np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))
        estimates = dict(zip([None, *columns], zip(coefficients.tolist(), errors.tolist(), strict=True), strict=True))
        residuals = Grid(dict(zip(self.scores, left.tolist(), strict=True)))
        return Fit(estimates, float(np.sqrt(variance)), freedom, residuals)


@dataclass(frozen=True)
class Fit:
    """Effects that add up, by least squares."""

    estimates: dict[tuple[str, float] | None, tuple[float, float]]  # value and standard error; None: the preset
    scatter: float  # standard deviation of what the effects do not explain
    freedom: int  # degrees of freedom
    residuals: Grid

    @property
    def preset(self) -> float:
        """The fitted score of the preset."""
        return self.estimates[None][0]

    @property
    def preset_error(self) -> float:
        """Its standard error."""
        return self.estimates[None][1]

    @property
    def error_of_run(self) -> float:
        """Standard error of a new run of the preset."""
        return float(np.hypot(self.scatter, self.preset_error))

    @property
    def strongest(self) -> str:
        """The hyperparameter with the largest effect."""
        return max(self._effects(), key=lambda e: abs(e[1]))[0]

    def effect(self, name: str, level: float) -> float:
        """Return what a level adds to the preset's score."""
        return self.estimates[name, level][0]

    def error(self, name: str, level: float) -> float:
        """Return the standard error of an effect."""
        return self.estimates[name, level][1]

    def weakest_of(self, name: str) -> float:
        """Return the smallest effect of a hyperparameter, without its sign."""
        return min(abs(e) for n, e in self._effects() if n == name)

    def strongest_without(self, name: str) -> float:
        """Return the largest effect of all other hyperparameters, without its sign."""
        return max(abs(e) for n, e in self._effects() if n != name)

    def _effects(self) -> list[tuple[str, float]]:
        return [(key[0], value) for key, (value, _) in self.estimates.items() if key]


@dataclass(frozen=True)
class Sensitivity:
    """One memory's scores in the table."""

    paper: Grid
    ours: Grid

    @property
    def gap(self) -> Grid:
        """The paper's scores minus ours."""
        return Grid({at: v - self.ours.scores[at] for at, v in self.paper.scores.items()})

    def below(self, **levels: float) -> Paired:
        """Return by how much ours are lower, over all settings with these levels."""
        paper, ours = self.paper.where(**levels), self.ours.where(**levels)
        return Paired("accuracy", tuple(paper.values), tuple(ours.scores[at] for at in paper.scores))

    def growth(self, name: str, low: float, high: float) -> Paired:
        """Return by how much the gap is larger at one level of a hyperparameter than at another, all else equal."""
        more = self.gap.where(**{name: high}).scores
        return Paired("gap", tuple(more.values()), tuple(self.gap.scores[at._replace(**{name: low})] for at in more))

    @property
    def fits_apart(self) -> Interval:
        """By how much the fitted score of the preset is lower here, fitted without the preset itself."""
        paper, ours = self.paper.without_preset.fit, self.ours.without_preset.fit
        margin = student.ppf(0.975, paper.freedom + ours.freedom) * np.hypot(paper.preset_error, ours.preset_error)
        d = paper.preset - ours.preset
        return Interval(d, float(d - margin), float(d + margin))

    @property
    def correlation(self) -> Interval:
        """The correlation between the paper's scores and ours."""
        return correlation(self.paper, self.ours)

    @property
    def correlation_of_residuals(self) -> Interval:
        """The correlation between the residuals of the fits."""
        fits = self.paper.fit, self.ours.fit
        return correlation(fits[0].residuals, fits[1].residuals, spent=len(fits[0].estimates) - 1)


def correlation(a: Grid, b: Grid, spent: int = 0) -> Interval:
    """Return Pearson's correlation with Fisher's interval; `spent` degrees of freedom went to a fit."""
    r = float(np.corrcoef([a.scores[at] for at in b.scores], b.values)[0, 1])
    low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(len(b.scores) - 3 - spent))
    return Interval(r, float(low), float(high))


def sensitivity(memory: str, entries: Sequence[tables.Entry]) -> Sensitivity:
    """Return a memory's scores among the entries of the table."""
    paper, ours = {}, {}
    for row, entry in zip(tables.paper_numbers()["sensitivity"]["rows"], entries, strict=True):
        if row["memory"] == memory:
            at = levels_of(row["settings"])
            paper[at] = entry.paper
            if entry.ours:
                ours[at] = entry.mean
    return Sensitivity(Grid(paper), Grid(ours))
