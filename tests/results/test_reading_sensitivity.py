"""What the reading says of the sensitivity, the paper's and ours, follows from table and records."""

from pathlib import Path

import numpy as np
import scipy.stats

from scommer.analysis.selection import load_records as load
from scommer.analysis.tables import paper_numbers

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


def test_what_the_reading_says_of_our_sensitivity_is_in_the_records(reading: str) -> None:
    paper, ours = sensitivity("long_term")
    n = len(ours)
    assert f"Of the sensitivity {n} of 27 settings were run" in reading
    lower = np.array([paper[at] - v for at, v in ours.items()])
    margin = scipy.stats.t.ppf(0.975, n - 1) * lower.std(ddof=1) / np.sqrt(n)
    assert f"they are {lower.mean():.1f} points lower than the paper's on average, between " in reading
    interval = f"between {lower.mean() + margin:.1f} lower and {margin - lower.mean():.1f} higher"
    assert f"{interval} (95 %)" in reading
    front = " ".join((ROOT / "README.md").read_text().split())
    assert f"over the {n} of its 27 settings of r, k and π_s that were run, ours are" in front
    assert f"ours are {lower.mean():.1f} lower on average (95 %: {interval})" in front
    together = np.corrcoef([paper[at] for at in ours], list(ours.values()))[0, 1]
    assert f"In long-term memory they hardly do ({together:.1f})" in reading
    assert f"need not be high here (correlation {together:.1f})" in reading
    assert f"all {n} lie between {min(ours.values()):.2f} and {max(ours.values()):.2f}" in reading
    effects, left, errors = additive(ours)
    published, *_ = additive(paper)
    assert f"scatter likewise, by {left:.1f} points around such a fit" in reading
    said = f"0.7 has {effects[3]:.1f} points more than 0.8, and 0.9 has {-effects[4]:.1f} less (standard errors 0.4)"
    assert said in reading
    assert [round(e, 1) for e in errors[3:5]] == [0.4, 0.4]
    assert f"in the paper {published[3]:.1f} more and {-published[4]:.1f} less" in reading
    assert all(abs(effects[i]) < errors[i] for i in (1, 2, 5, 6))  # only %k is clear
    assert f"for π_s of 1, {-published[5]:.1f} point less than 2, is {-effects[5]:.1f} here" in reading
    by_k = [[round(np.mean([v[at] for at in ours if at[1] == k]), 1) for k in (0.7, 0.8, 0.9)] for v in (ours, paper)]
    assert "ours have {}, {} and {} with 0.7, 0.8 and 0.9".format(*by_k[0]) in reading
    assert "the paper's the same settings {}, {} and {}.".format(*by_k[1]) in reading
    sparse = [at for at in ours if at[1] == 0.7]
    assert (len(sparse), f"{by_k[0][0]} with %k of 0.7 (mean of seven settings" in reading) == (7, True)
    best = max(ours, key=lambda at: ours[at])
    assert best == (0.6, 0.7, 3.0)
    assert f"has {ours[best]:.2f} (r 0.6, %k 0.7, π_s 3; the paper {paper[best]:.1f})" in reading


def test_what_the_reading_says_of_working_memorys_sensitivity_is_in_the_records(reading: str) -> None:
    paper, ours = sensitivity("working")
    lower = np.array([paper[at] - v for at, v in ours.items()])
    margin = scipy.stats.t.ppf(0.975, len(lower) - 1) * lower.std(ddof=1) / np.sqrt(len(lower))
    assert f"it is lower with {(lower > 0).sum()} of the {len(lower)} settings of the sensitivity" in reading
    low, high = lower.mean() - margin, lower.mean() + margin
    assert f"by {lower.mean():.1f} points on average (95 %: {low:.1f} to {high:.1f})" in reading
    together = np.corrcoef([paper[at] for at in ours], list(ours.values()))[0, 1]
    assert f"the {len(ours)} settings (correlation {together:.1f})" in reading
    (effects, *_), (published, *_) = additive(ours), additive(paper)
    assert f"π_s of 1 has {-effects[5]:.1f} points less than 2" in reading
    assert f"other things being equal (in the paper {-published[5]:.1f})" in reading
    assert f"%k of 0.7 has {effects[3]:.1f} more than 0.8 ({published[3]:.1f})" in reading
    exact, half = (
        load([Path(f"{ROOT}/{runs}")]) for runs in ("docs/precision", "results/s-cifar10-scommer-200-*@preset")
    )
    more = np.mean([r.accuracy("working") for r in exact]) - np.mean([r.accuracy("working") for r in half])
    assert f"the same three seeds have {more:.1f} points more in TF32" in reading
