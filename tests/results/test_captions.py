"""What captions, README and the page on speed say of runs is what their records hold."""

import math
import re
import statistics
from pathlib import Path

from scommer.analysis.comparison import Difference, compare
from scommer.analysis.groups import groups
from scommer.analysis.selection import load_records as load
from scommer.runs.record import Record, find

ROOT = Path(__file__).parents[2]


def test_the_digits_in_the_readme_are_those_of_the_records() -> None:
    records = [Record.load(folder) for folder in find(ROOT / "docs" / "records")]
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| (\d) of (\d) \|$", (ROOT / "README.md").read_text(), re.M)
    assert len(rows) == 2
    for buffer, scommer, er, ahead, seeds in rows:
        found = {
            method: {
                r.experiment["seed"]: r.accuracy()
                for r in records
                if (r.experiment["method"], r.experiment["buffer"]) == (method, int(buffer))
            }
            for method in ("scommer", "er")
        }
        assert found["scommer"].keys() == found["er"].keys() == set(range(int(seeds)))
        assert scommer == f"{statistics.fmean(found['scommer'].values()):.1f}"
        assert er == f"{statistics.fmean(found['er'].values()):.1f}"
        assert int(ahead) == sum(found["er"][s] > found["scommer"][s] for s in found["er"])


def test_the_picture_in_the_readme_has_its_runs() -> None:
    """Its numbers are rounded means at the end; SGD knows only the last task."""
    runs = load([Path(f"{ROOT}/docs/records/s-digits-{run}-*") for run in ("scommer-30-seed0", "er-30-seed0", "sgd")])
    ends = {r.experiment["method"]: f"{r.accuracy():.1f}" for r in runs}
    assert ends == {"scommer": "88.3", "er": "83.1", "sgd": "19.7"}  # as drawn
    (sgd,) = (r for r in runs if r.experiment["method"] == "sgd")
    assert (sgd.matrix()[-1, :-1] == 0).all()


def test_the_precisions_that_are_compared_are_those_of_the_records(reading: str) -> None:
    half = load([Path(f"{ROOT}/results@method=scommer@stream=s-cifar10@buffer=200@preset@precision=bf16")])
    full = load([Path(f"{ROOT}/docs/precision@preset")])
    (found,) = compare(half, full)
    assert (found.seeds, found.labels) == ((0, 1, 2), ("SCoMMER, bf16", "SCoMMER, tf32"))
    d = found.differences[0]
    told = " ".join((ROOT / "docs/performance.md").read_text().split())
    assert f"long-term memory has {statistics.fmean(d.a):.2f}, {69.19 - statistics.fmean(d.a):.2f} under" in told
    assert f"missed by {68.19 - statistics.fmean(d.a):.2f}" in told
    assert f"have {statistics.fmean(d.b):.2f}: seed by seed" in told
    assert f"between {d.margin - d.mean:.1f} points less and {d.mean + d.margin:.1f} more" in told
    anew = statistics.fmean(r.accuracy("long_term/recalibrated") for r in full)
    assert f"give {anew:.1f} on S-CIFAR10 with 200 (three seeds, in TF32" in reading
    assert f"three seeds in TF32 have {statistics.fmean(d.b):.1f}" in reading
    gcil = load([Path(f"{ROOT}/results/gcil-*-scommer-200-*")])
    more = [r.accuracy("long_term/recalibrated") - r.accuracy() for r in gcil if r.code["commit"].startswith("be061a9")]
    assert len(more) == 3
    assert f"On GCIL with 200 they give {min(more):.1f} to {max(more):.1f} points more" in reading
    working = [{r.experiment["seed"]: r.accuracy("working") for r in runs} for runs in (half, full)]
    means = [statistics.fmean(side.values()) for side in working]
    assert f"Working memory has {means[0]:.2f} in bf16 and {means[1]:.2f} in TF32" in told
    pairs = [(load([ROOT / "results" / r.name])[0], r) for r in load([ROOT / "docs" / "precision"])]
    (stronger,) = [pair for pair in pairs if pair[0].settings["pi_s"] == 3]
    assert "with π_s of 3 (seed 0, {:.2f} and {:.2f})".format(*(r.accuracy("working") for r in stronger)) in told
    more = Difference("", *(tuple(pair[i].accuracy("working") for pair in pairs) for i in (1, 0)))
    low, high = more.mean - more.margin, more.mean + more.margin
    assert f"{more.mean:.1f} points on average (95 %: {low:.1f} to {high:.1f})" in told
    assert "TF32 has {1:.2f} where bf16 has {0:.2f}".format(*(r.accuracy() for r in stronger)) in told
    most = Difference("", *(tuple(pair[i].accuracy() for pair in pairs) for i in (1, 0)))
    said = f"{most.margin - most.mean:.1f} less to {most.mean + most.margin:.1f} more)"
    assert f"over these four pairs TF32 has {most.mean:.1f} more ({said}" in told
    assert f"four pairs {most.mean:.1f} more in TF32 (95 %: {said}" in reading
    for t in (1, 2, 3):  # after the second task to the last but one, some have more in the one, some in the other
        after = [[r.matrix("working")[t, : t + 1].mean() for r in pair] for pair in pairs]
        assert {bool(a > b) for a, b in after} == {True, False}
    assert "(by {:.1f}, {:.1f} and {:.1f})".format(*(working[1][s] - working[0][s] for s in range(3))) in told


def test_what_the_captions_say_of_four_methods_is_in_the_records(captions: str) -> None:
    runs = {r.experiment["method"]: r for r in load([Path(f"{ROOT}/results/s-cifar10-*-200-seed0-*@preset")])}
    assert set(runs) == {"er", "der++", "cls-er", "scommer"}
    least = {m: r.matrix(r.inference)[-1].min() for m, r in runs.items()}
    assert max(least, key=least.__getitem__) == "scommer"
    assert least["scommer"] > 45
    assert "no task is left below 45 %" in captions
    stable = runs["cls-er"].matrix("stable")
    assert (
        f"knows {stable[3, 3]:.0f} % of the fourth task when it has just been learned, and {stable[4, 3]:.0f} %"
        in captions
    )
    lean = {m: r.arrays[f"task_probability/{r.inference}"] for m, r in runs.items()}
    assert [m for m in lean if lean[m].argmax() == 4] == ["der++", "er", "scommer"]
    assert lean["er"][4] > lean["der++"][4] > lean["scommer"][4]
    assert lean["cls-er"].argmax() == 2  # the third


def test_what_the_ablations_caption_says_of_the_last_task_is_in_the_records(captions: str) -> None:
    """How often a class of the last task is predicted, against an earlier one, over all test images."""
    times: dict[bool, list[float]] = {True: [], False: []}
    rows = ("er-200-*", "scommer-200-*@preset", "scommer-200-*@dropout=none")
    for r in load([Path(f"{ROOT}/results/s-cifar10-{row}") for row in rows]):
        p = r.arrays[f"class_probability/{r.inference}"]
        times[r.inference == "long_term"].append(p[8:].mean() / p[:8].mean())
    assert f"predicted {min(times[True]):.1f} to {max(times[True]):.1f} times" in captions
    assert f"without it, {min(times[False]):.0f} to {max(times[False]):.0f} times" in captions


def test_what_the_caption_of_all_settings_says_is_in_the_records(captions: str) -> None:
    runs = load([Path(f"{ROOT}/results/s-cifar10-scommer-200-*")])
    held = [g for g in groups(runs) if not any(g.records[0].settings[s] for s in ("joint_batch", "replay_dropout"))]
    assert len(groups(runs)) - len(held) == 3
    ends = {m: [g.matrices(m)[:, -1].mean() for g in held if m in g.memories] for m in ("long_term", "working")}
    wide = {m: math.ceil(max(v) - min(v)) for m, v in ends.items()}
    assert f"long-term memory lie within {wide['long_term']} points, those of working" in captions
    assert f"memory within {wide['working']}." in captions
