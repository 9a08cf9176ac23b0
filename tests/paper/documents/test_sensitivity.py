"""Additive fits and intervals on the 27 settings, against closed forms for a balanced design."""

import math

import numpy as np
import pytest
from scipy.stats import pearsonr, ttest_rel

from scommer.paper import tables
from scommer.paper.documents.sensitivity import Grid, Levels, Sensitivity, correlation, preset_levels, sensitivity

ALL = [Levels(r, k, pi_s) for r in (0.4, 0.5, 0.6) for k in (0.7, 0.8, 0.9) for pi_s in (1.0, 2.0, 3.0)]


def grid(seed: int) -> Grid:
    """Effects and noise."""
    rng = np.random.default_rng(seed)
    return Grid({at: 60 + 5 * at.r - 9 * at.k + 2 * (at.pi_s > 1) + rng.normal() for at in ALL})


def test_exact_effects_are_found() -> None:
    fit = Grid({at: 60 + (at.k == 0.7) * 3 - (at.pi_s == 1) * 5 for at in ALL}).fit
    assert fit.preset == pytest.approx(60)
    assert [fit.effect("k", 0.7), fit.effect("k", 0.9), fit.effect("pi_s", 1)] == pytest.approx([3, 0, -5], abs=1e-9)
    assert fit.scatter == pytest.approx(0, abs=1e-9)
    assert fit.strongest == "pi_s"
    assert fit.weakest_of("k") == pytest.approx(0, abs=1e-9)
    assert fit.strongest_without("pi_s") == pytest.approx(3)


def test_with_all_settings_an_effect_is_a_difference_of_means() -> None:
    scores = grid(0)
    fit = scores.fit
    for name, usual in zip(Levels._fields, preset_levels(), strict=True):
        for level in scores.levels(name):
            if level != usual:
                means = scores.where(**{name: level}).mean - scores.where(**{name: usual}).mean
                assert fit.effect(name, level) == pytest.approx(means)
                assert fit.error(name, level) == pytest.approx(fit.scatter * math.sqrt(2 / 9))
    left = np.array(fit.residuals.values)
    assert fit.scatter == pytest.approx(math.sqrt((left**2).sum() / 20))
    assert left.sum() == pytest.approx(0, abs=1e-9)


def test_without_the_preset_it_is_predicted_from_the_others() -> None:
    """Leaving a point out moves its residual e to e / (1 - h), with leverage h = 7 / 27 in a balanced design."""
    scores = grid(1)
    others = scores.without_preset
    assert len(others.values) == 26
    assert scores.preset - others.fit.preset == pytest.approx(scores.fit.residuals.preset / (1 - 7 / 27))
    assert others.fit.preset_error == pytest.approx(others.fit.scatter * math.sqrt(7 / 20))  # h / (1 - h)
    assert others.fit.error_of_run == pytest.approx(others.fit.scatter * math.sqrt(27 / 20))


def test_ranks_steps_and_trends() -> None:
    scores = Grid({at: float(i) for i, at in enumerate(ALL)})  # 0 to 26 in the order of r, then %k, then π_s
    assert (scores.preset, scores.rank_of_preset, scores.best) == (13.0, 14, Levels(0.6, 0.9, 3.0))
    assert (scores.largest_step, scores.trend("r"), scores.trend("k"), scores.trend("pi_s")) == (9.0, 18.0, 6.0, 2.0)
    assert scores.at(0.4, 0.7, 3) == 2.0


def test_gaps_between_the_paper_and_ours() -> None:
    table = Sensitivity(grid(0), grid(2))
    gap = table.below(k=0.7)
    low, high = ttest_rel(table.paper.where(k=0.7).values, table.ours.where(k=0.7).values).confidence_interval()
    assert (gap.low, gap.high) == (pytest.approx(low), pytest.approx(high))
    assert table.growth("k", 0.7, 0.9).mean == pytest.approx(table.below(k=0.9).mean - gap.mean)
    apart = table.fits_apart
    assert apart.mean == pytest.approx(table.paper.without_preset.fit.preset - table.ours.without_preset.fit.preset)
    assert apart.high - apart.mean == pytest.approx(apart.mean - apart.low)


def test_a_correlation_has_fishers_interval() -> None:
    a, b = grid(0), grid(3)
    found, known = correlation(a, b), pearsonr(a.values, b.values)
    assert found.mean == pytest.approx(known.statistic)
    low, high = known.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    narrow, wide = correlation(a, b), correlation(a, b, spent=6)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_table_of_the_paper_is_the_grid() -> None:
    table = sensitivity("working", tables.entries("sensitivity", []))
    assert set(table.paper.scores) == set(ALL)
    assert table.paper.at(0.6, 0.7, 3) == 62.44  # Table S3
    assert table.paper.preset == 58.03
    assert not table.ours.scores
