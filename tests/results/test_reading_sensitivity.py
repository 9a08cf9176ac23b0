"""What the reading says of the sensitivity, the paper's and ours, follows from table and records."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.stats

from scommer.analysis.selection import load_records as load
from scommer.paper.tables import paper_numbers

ROOT = Path(__file__).parents[2]


Levels = tuple[float, float, float]  # r, %k of the last stage, π_s


def sensitivity(memory: str) -> tuple[dict[Levels, float], dict[Levels, float]]:
    """Class-IL of the paper in Table S3 and, where there are runs, ours."""
    paper = {}
    for r in paper_numbers()["sensitivity"]["rows"]:
        if r["memory"] == memory:
            paper[r["settings"]["r"], r["settings"]["active"][-1], r["settings"]["pi_s"]] = r["values"][0][0]
    varied: dict[Levels, list[float]] = {}
    usual = load([Path(f"{ROOT}/results/s-cifar10-scommer-200-*@preset")])[0].settings
    for r in load([Path(f"{ROOT}/results/s-cifar10-scommer-200-*@variant=official")]):
        unlike = {name for name, value in r.settings.items() if usual[name] != value}
        at = (r.settings["r"], r.settings["active"][-1], r.settings["pi_s"])
        if unlike <= {"r", "active", "pi_s"} and at in paper:
            varied.setdefault(at, []).append(r.accuracy(memory))
    return paper, {at: np.mean(varied[at]) for at in paper if at in varied}


def additive(scores: dict[Levels, float]) -> tuple[np.ndarray, float, np.ndarray]:
    """Effects against the preset, r 0.4 and 0.6, %k 0.7 and 0.9, π_s 1 and 3, by least squares: what remains, errors.

    The first effect is the preset's own score.
    """
    y, x = np.array(list(scores.values())), np.array([row_of(at) for at in scores])
    effects, *_ = np.linalg.lstsq(x, y)
    scatter = ((y - x @ effects) ** 2).sum() / (len(y) - 7)
    return effects, np.sqrt(scatter), np.sqrt(scatter * np.diag(np.linalg.inv(x.T @ x)))


def row_of(at: Levels) -> list[float]:
    r, k, pi_s = at
    return [1.0, r == 0.4, r == 0.6, k == 0.7, k == 0.9, pi_s == 1, pi_s == 3]


def test_what_the_reading_says_of_the_papers_sensitivity_follows_from_its_table(reading: str) -> None:
    """Effects that add up, by least squares: with all settings, and without the one that was chosen."""
    paper, _ = sensitivity("long_term")
    chosen = (0.5, 0.8, 2.0)
    assert len(paper) == 27
    score, levels = np.array(list(paper.values())), list(paper)
    _, left, _ = additive(paper)
    fitted, scatter, errors = additive({at: v for at, v in paper.items() if at != chosen})
    expected, error = fitted[0], np.hypot(scatter, errors[0])  # of a new run there
    grid = [sorted(set(column)) for column in zip(*levels, strict=True)]
    means = [[np.mean([s for at, s in paper.items() if at[i] == v]) for v in g] for i, g in enumerate(grid)]
    steps = [
        abs(paper[a] - paper[b])
        for a in levels
        for b in levels
        if sorted(abs(g.index(u) - g.index(v)) for g, u, v in zip(grid, a, b, strict=True)) == [0, 0, 1]
    ]
    assert (score > paper[chosen]).sum() == 4
    assert "the fifth best of them" in reading
    assert f"the best of them ({score.max():.1f}) is not the one reported" in reading
    assert f"Their mean is {score.mean():.1f}," in reading
    assert f"standard deviation of {left:.1f}: neighbours differ by up to {max(steps):.1f} points" in reading
    assert [round(max(m) - min(m)) for m in means] == [1, 1, 1]
    assert "while the trend of each hyperparameter is about one" in reading
    assert f"the chosen setting would have {expected:.1f}, not 69.19 (standard error {error:.1f})" in reading
    assert f"{paper[chosen] - expected:.1f} of our 1.41 points" in reading


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and Student's interval of 95 % for it."""
    v = np.array(values)
    margin = scipy.stats.t.ppf(0.975, len(v) - 1) * v.std(ddof=1) / np.sqrt(len(v))
    return v.mean(), v.mean() - margin, v.mean() + margin


def correlation(a: dict[Levels, float], b: dict[Levels, float], lost: int = 0) -> tuple[float, float, float]:
    """Pearson's, and Fisher's interval of 95 % for it; so many degrees of freedom may be lost to a fit."""
    r = np.corrcoef([a[at] for at in b], list(b.values()))[0, 1]
    return r, *np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(len(b) - 3 - lost))


def test_all_settings_of_the_table_were_run(reading: str) -> None:
    paper, ours = sensitivity("long_term")
    assert ours.keys() == paper.keys()
    assert f"in the sensitivity one of each of the {len(ours)} settings, but three of the preset" in reading


def test_what_the_reading_says_of_our_sensitivity_is_in_the_records(reading: str) -> None:
    paper, ours = sensitivity("long_term")
    assert f"all {len(ours)} lie between {min(ours.values()):.2f} and {max(ours.values()):.2f}" in reading
    (effects, _, errors), (published, _, their) = additive(ours), additive(paper)
    costs = f"long-term memory {-effects[5]:.1f} (standard error {errors[5]:.1f};"
    assert f"{costs} in the paper's {-published[5]:.1f}, standard error {their[5]:.1f})" in reading
    assert f"it has {effects[3]:.1f} points more than with 0.8, with 0.9 it has {-effects[4]:.1f} less" in reading
    assert f"(standard errors {errors[3]:.1f})" in reading
    assert max(abs(effects[[1, 2, 5, 6]])) < min(abs(effects[[3, 4]]))  # what matters most is %k
    assert all(abs(effects[i]) > 3 * errors[i] for i in (3, 4))
    told = f"%k is not clear ({published[3]:.1f} more and {-published[4]:.1f} less, standard errors {their[3]:.1f})"
    assert f"In the paper's it is π_s, and {told}" in reading
    assert abs(published).argsort()[-2] == 5  # after its height
    assert all(abs(published[i]) < 1.5 * their[i] for i in (3, 4))
    r, low, high = correlation(paper, ours)
    assert f"(correlation {r:.1f}, 95 %: just below 0 to {high:.1f})" in reading
    assert -0.05 < low < 0


def test_what_the_reading_says_of_sparsity_is_in_the_records(reading: str, front: str) -> None:
    paper, ours = sensitivity("long_term")
    by_k = [[round(np.mean([v[at] for at in ours if at[1] == k]), 1) for k in (0.7, 0.8, 0.9)] for v in (ours, paper)]
    assert "ours have {}, {} and {} with 0.7, 0.8 and 0.9".format(*by_k[0]) in reading
    assert "the paper's {}, {} and {} (means of nine)".format(*by_k[1]) in reading
    assert f"SCoMMER has {by_k[0][0]} (mean of nine settings" in reading
    assert "fewer active units do better ({}, {} and {} with 70, 80 and 90 %".format(*by_k[0]) in front
    gap = {at: paper[at] - ours[at] for at in ours}
    told = [interval([gap[at] for at in gap if at[1] == k]) for k in (0.7, 0.8, 0.9)]
    first = "The gap is {:.1f} (95 %: {:.1f} to {:.1f}), ".format(*told[0])
    assert first + "{:.1f} ({:.1f} to {:.1f}) and {:.1f} ({:.1f} to {:.1f})".format(*told[1], *told[2]) in reading
    grows = interval([v - gap[r, 0.7, pi_s] for (r, k, pi_s), v in gap.items() if k == 0.9])
    assert "from 0.7 to 0.9 it grows by {:.1f} ({:.1f} to {:.1f})".format(*grows) in reading
    by_r = [np.mean([v for at, v in gap.items() if at[0] == r]) for r in (0.4, 0.5, 0.6)]
    assert "({:.1f}, {:.1f} and {:.1f} with 0.4, 0.5 and 0.6)".format(*by_r) in reading
    best = max(ours, key=lambda at: ours[at])
    assert best == (0.6, 0.7, 3.0)
    assert f"has {ours[best]:.2f} (r 0.6, %k 0.7, π_s 3; the paper {paper[best]:.1f})" in reading


def test_what_the_reading_says_of_fewer_active_units_is_in_the_records(reading: str) -> None:
    runs = load([Path(f"{ROOT}/results/s-cifar10-scommer-200-seed0-*@variant=official")])
    (usual,) = load([Path(f"{ROOT}/results/s-cifar10-scommer-200-seed0-*@preset")])
    sparser, sparse = (
        next(r.accuracy() for r in runs if r.settings == {**usual.settings, "active": [0.9, 0.9, 0.9, k]})
        for k in (0.6, 0.7)
    )
    assert f"one seed has {sparser:.2f}, where 0.7 has {sparse:.2f} and the preset {usual.accuracy():.2f}" in reading
    assert f"single runs scatter by {additive(sensitivity('long_term')[1])[1]:.1f};" in reading
    assert f"with 0.6 it has {sparser:.1f}, with one seed." in reading


def test_what_the_reading_says_for_and_against_luck_is_in_the_records(reading: str, front: str) -> None:
    paper, ours = sensitivity("long_term")
    gaps = [paper[at] - v for at, v in ours.items()]
    lower, low, high = interval(gaps)
    told = f"by {lower:.1f} points (95 %: {low:.1f} to {high:.1f}), in {sum(g > 0 for g in gaps)} of the {len(gaps)}"
    assert f"they are lower than the paper's on average too, {told}" in reading
    mean = f"ours are {lower:.1f} lower on average (95 %: {low:.1f} to {high:.1f})"
    assert f"With all {len(ours)} settings of the paper's sensitivity table, one seed, {mean}" in front
    x = np.array([row_of(at) for at in ours])
    left = [dict(zip(v, np.array(list(v.values())) - x @ additive(v)[0], strict=True)) for v in (paper, ours)]
    again, low, high = correlation(*left, lost=6)
    assert abs(again) < 0.05
    assert (round(low, 1), round(high, 1)) == (-0.5, 0.4)
    assert "does not recur in ours (correlation 0.0; 95 %: -0.5 to 0.4)" in reading
    chosen = (0.5, 0.8, 2.0)
    (fitted, scatter, errors), (published, _, their) = (
        additive({at: v for at, v in scores.items() if at != chosen}) for scores in (ours, paper)
    )
    above, error = ours[chosen] - fitted[0], np.hypot(scatter, errors[0])
    assert (
        f"by {above:.1f} points (the other {len(ours) - 1} give {fitted[0]:.1f}, standard error {error:.1f})" in reading
    )
    stay, margin = published[0] - fitted[0], scipy.stats.t.ppf(0.975, 2 * (26 - 7)) * np.hypot(errors[0], their[0])
    told = f"fit against fit {stay:.1f} points of the gap stay (95 %: {stay - margin:.1f} to {stay + margin:.1f})"
    assert told in reading


def test_what_the_reading_says_of_working_memorys_sensitivity_is_in_the_records(reading: str) -> None:
    paper, ours = sensitivity("working")
    lower = [paper[at] - v for at, v in ours.items()]
    assert f"it is lower with {sum(d > 0 for d in lower)} of the {len(lower)} settings of the sensitivity" in reading
    assert "by {:.1f} points on average (95 %: {:.1f} to {:.1f})".format(*interval(lower)) in reading
    assert f"go together (correlation {correlation(paper, ours)[0]:.1f})" in reading
    (effects, *_), (published, *_) = additive(ours), additive(paper)
    assert f"costs working memory {-effects[5]:.1f} points (in the paper's numbers {-published[5]:.1f})" in reading
    assert f"instead of 80 it has {effects[3]:.1f} points more ({published[3]:.1f})" in reading


def test_what_the_reading_says_of_what_moves_working_memory_is_in_the_records(reading: str) -> None:
    more = []
    for exact in load([ROOT / "docs/precision"]):
        (other,) = load([ROOT / "results" / exact.name])
        more.append(exact.accuracy("working") - other.accuracy("working"))
    assert len(more) == 4
    assert "has {:.1f} points more at the end (95 %: {:.1f} to {:.1f};".format(*interval(more)) in reading
    _, ours = sensitivity("working")
    fitted, *_ = additive({at: v for at, v in ours.items() if at != (0.5, 0.8, 2.0)})
    exact = np.mean([r.accuracy("working") for r in load([Path(f"{ROOT}/docs/precision@preset")])])
    assert f"would give it {fitted[0]:.1f}, from where TF32 is {exact - fitted[0]:.1f} higher" in reading
    (usual,) = load([Path(f"{ROOT}/results/s-cifar10-scommer-200-seed0-*@preset")])
    moved = {}
    names = {name for row in paper_numbers()["variants"]["rows"] for name in row.get("settings", {})}
    for r in load([Path(f"{ROOT}/results/s-cifar10-scommer-200-seed0-*@variant=official")]):
        unlike = [name for name, value in r.settings.items() if usual.settings[name] != value]
        if len(unlike) == 1 and unlike[0] in names - {"joint_batch", "replay_dropout"}:
            moved[unlike[0]] = r.accuracy("working") - usual.accuracy("working")
    assert f"where the published code has 5, it has {moved.pop('pi_h'):.1f} more, with one" in reading
    assert len(moved) == 10
    assert f"by {min(moved.values()):.1f} to {max(moved.values()):.1f} points in the ten other rows" in reading
