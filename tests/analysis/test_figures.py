"""Figures: what they draw, that nothing is cut off, and which runs they refuse."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from PIL import Image

from scommer import Experiment, class_il, run
from scommer.analysis import figures
from scommer.analysis.figures import FIGURES, style
from scommer.errors import UsageError
from scommer.methods import METHODS, Method

GCIL = {"stream": "gcil-made", "kind": "gcil", "tasks": ((0, 1, 2), (2, 3), (0, 4, 5)), "classes": 7}


@pytest.fixture
def runs(make):
    """Three methods, one of them with three seeds."""
    return [make("sgd", buffer=None), make("er"), *(make("scommer", s) for s in range(3))]


def texts(figure):
    """Every text of a drawn figure, with its box."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    beyond = set()  # tick labels outside the limits exist but are not drawn
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
        beyond |= {t for tick in ticks for t in (tick.label1, tick.label2) if not low <= tick.get_loc() <= high}
    found = [t for t in figure.findobj(lambda o: hasattr(o, "get_text")) if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent()) for t in found if t not in beyond]


def labels(figure):
    (legend,) = figure.legends
    return [t.get_text() for t in legend.get_texts()]


def lines(ax, method):
    return [l for l in ax.lines if to_hex(l.get_color()).upper() == METHODS[method].colour]


# --- content


def test_tasks_has_a_panel_for_each_task_with_both_memories(runs):
    figure = figures.draw("tasks", runs)
    axes = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in axes] == ["task T1", "task T2", "task T3", "mean so far"]
    seeds = [r for r in runs if r.experiment.method == "scommer"]
    working, long_term = lines(axes[1], "scommer")
    for line, memory in ((working, "working"), (long_term, "long_term")):
        assert line.get_xdata().tolist() == [2, 3]  # a task is not drawn before it was learned
        assert line.get_ydata() == pytest.approx(np.mean([r.matrix(memory)[1:, 1] for r in seeds], 0))
    assert long_term.get_linestyle() == "-"
    assert working.get_linestyle() == "--"
    mean = lines(axes[3], "er")[0].get_ydata()
    r = runs[1].matrix()
    assert mean == pytest.approx([r[0, 0], r[1, :2].mean(), r[2].mean()])
    assert labels(figure) == ["SGD", "ER", "SCoMMER", "memory used for inference", "working memory"]
    band = axes[0].collections[0].get_paths()[0].vertices[:, 1]  # mean ± std at the first and last point
    first = np.array([r.matrix("working")[:, 0] for r in seeds])
    assert band.max() == pytest.approx((first.mean(0) + first.std(0, ddof=1)).max())


def test_matrices_are_the_means_over_seeds(runs):
    figure = figures.draw("matrices", runs)
    *panels, scale = figure.axes
    assert [ax.get_title().splitlines()[0] for ax in panels] == ["SGD", "ER", "SCoMMER (3\N{NO-BREAK SPACE}seeds)"]
    mean = np.mean([r.matrix("long_term") for r in runs[2:]], 0)
    assert np.asarray(panels[2].images[0].get_array()) == pytest.approx(mean)
    assert scale.get_ylabel() == "accuracy (%)"


def test_cells_have_numbers_only_if_they_are_readable(make):
    many = {"tasks": tuple((t,) for t in range(20)), "classes": 20}
    assert not figures.draw("matrices", [make("joint", buffer=None, **many)]).axes[0].texts  # 20 in one row
    assert len(figures.draw("matrices", [make("joint", buffer=None)]).axes[0].texts) == 3


def test_four_matrices_form_a_square(make):
    figure = figures.draw("matrices", [make("er"), make("er", buffer=50), make(), make(buffer=50)])
    assert figure.axes[0].get_gridspec().get_geometry() == (2, 2)


def test_codes_shows_activity_and_p_s_in_one_order_of_filters(make):
    record = make(tasks=((4, 5), (0, 1), (2, 3)))
    figure = figures.draw("codes", [record])
    activity, p_s, similarity, correlation = figure.axes[:2] + [
        ax for ax in figure.axes if ax.get_title().startswith(("similarity", "correlation"))
    ]
    order = [4, 5, 0, 1, 2, 3]  # of classes, in the order of their tasks
    names = [f"class {c}" for c in order]
    for ax in (activity, p_s, similarity):
        assert [t.get_text() for t in ax.get_yticklabels()] == names
    a, p = record.arrays["activity/long_term/2"][order], record.arrays["p_s/2"][order].astype(float)
    shown, kept = (np.asarray(ax.images[0].get_array()) for ax in (activity, p_s))
    units = [int(np.flatnonzero((p == column[:, None]).all(0))[0]) for column in kept.T]
    assert sorted(units) == list(range(a.shape[1]))
    assert shown == pytest.approx((a / a.max(1, keepdims=True))[:, units])
    assert np.diff(kept.argmax(0)).min() >= 0  # filters of one class are together
    unit = a / np.linalg.norm(a, axis=1, keepdims=True)
    assert np.asarray(similarity.images[0].get_array()) == pytest.approx(unit @ unit.T)
    bars = [bar.get_height() for bar in correlation.patches]
    assert bars == pytest.approx([np.corrcoef(a[c], p[c])[0, 1] for c in range(6)])


def test_codes_of_many_classes_lists_the_most_similar_pairs(make):
    record = make(
        kind="gcil", stream="gcil-made", tasks=(tuple(range(60)), tuple(range(40, 100))), classes=100, units=40
    )
    figure = figures.draw("codes", [record])
    (pairs,) = (ax for ax in figure.axes if ax.get_title() == "most similar pairs")
    a = record.arrays["activity/long_term/2"].astype(float)
    best = max(
        combinations(range(100), 2), key=lambda cd: a[cd[0]] @ a[cd[1]] / np.linalg.norm(a[list(cd)], axis=1).prod()
    )
    assert pairs.get_yticklabels()[0].get_text() == f"class {best[0]}, class {best[1]}"
    written = texts(figure)
    rows = sorted((box for text, box in written if text.startswith("class ") and "," not in text), key=lambda b: b.y0)
    assert len(rows) == 100
    assert all(one.y1 - other.y0 < 0.35 * one.height for one, other in pairwise(rows))


def test_recency_shows_the_probability_of_each_task(runs):
    figure = figures.draw("recency", runs)
    ax = figure.axes[0]
    assert ax.get_ylabel() == "mean probability of the task (%)"
    assert labels(figure) == ["SGD", "ER", "SCoMMER", "even"]
    p = np.mean([r.arrays["class_probability/long_term"].reshape(3, 2).sum(1) for r in runs[2:]], 0)
    bars = [bar for bar in ax.patches if to_hex(bar.get_facecolor()).upper() == METHODS["scommer"].colour]
    assert [bar.get_height() for bar in bars] == pytest.approx(100 * p)
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(100 / 3)


def test_recency_counts_a_class_that_comes_back_in_its_last_task(make):
    record = make("er", **GCIL)
    ax = figures.draw("recency", [record]).axes[0]
    p = 100 * record.arrays["class_probability/working"]
    expected = [p[1], p[[2, 3]].mean(), p[[0, 4, 5]].mean()]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(expected)
    assert [t.get_text() for t in ax.texts] == ["1", "2", "3"]  # number of classes
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(100 / 6)  # class 6 is in no task


def test_stability_draws_the_last_row_over_the_diagonal(runs):
    figure = figures.draw("stability", [*runs])
    ax = figure.axes[0]
    (points,) = lines(ax, "er")
    r = runs[1].matrix()
    assert points.get_xdata() == pytest.approx(r.diagonal())
    assert points.get_ydata() == pytest.approx(r[-1])
    assert f"ER: {r.diagonal().mean():.1f} → {r[-1].mean():.1f} %" in labels(figure)
    low, high = ax.get_xlim()
    assert low <= r.diagonal().min()
    assert high >= r.diagonal().max()


def test_history_has_the_loss_of_every_epoch_and_accuracy_after_every_task(make):
    runs = [make("joint", buffer=None), make("er", 0), make("er", 1)]
    top, bottom = figures.draw("history", runs).axes
    loss = np.stack([r.arrays["loss"] for r in runs[1:]])
    (drawn,) = lines(top, "er")
    assert drawn.get_xdata() == pytest.approx(np.arange(1, 13) / 4)  # four epochs a task
    assert drawn.get_ydata() == pytest.approx(np.exp(np.log(loss).mean(0)))
    assert top.get_yscale() == "log"
    assert top.get_ylabel() == "training loss"
    assert lines(bottom, "er")[0].get_ydata()[-1] == pytest.approx(np.mean([r.accuracy() for r in runs[1:]]))
    assert lines(bottom, "joint")[0].get_ydata() == pytest.approx([runs[0].accuracy()])  # one point, at the end
    assert "4 epochs each; mean ± std of 1 to 2 seeds" in bottom.get_xlabel()
    _, alone = figures.draw("history", runs[:1]).axes
    assert alone.get_xlabel() == "all at once, 4 epochs"
    assert not alone.get_xticklabels()


def test_history_follows_tasks_of_different_lengths():
    """Of your own data, a small task has more epochs than a large one, and none is drawn beyond its end."""
    r, y = np.random.default_rng(0), np.array([0, 1] * 32 + [2, 3] * 320)
    stream = class_il((r.random((704, 8, 8)), y, r.random((4, 8, 8)), np.arange(4)), tasks=2)
    record = run(Experiment(stream, "sgd", settings={"width": 4}))
    top, bottom = figures.draw("history", [record]).axes
    (drawn,) = lines(top, "sgd")
    small, large = 150, 20  # 2 steps in an epoch of the first task, and at least 300 in all
    assert drawn.get_xdata() == pytest.approx(
        [*np.arange(1, small + 1) / small, *(1 + np.arange(1, large + 1) / large)]
    )
    assert bottom.get_xlabel() == "end of task"


def test_history_of_other_losses(make):
    """A loss of 0 has no place on a logarithmic scale; a line needs losses, as many for each seed."""
    one, other = make("scommer", 0), make("scommer", 1)
    one.arrays["loss"][:] = 0
    top, _ = figures.draw("history", [one]).axes
    assert np.isnan(top.lines[0].get_ydata()).all()
    other.arrays["loss"] = np.ones(5)
    with pytest.raises(UsageError, match="different shapes of 'loss'"):
        figures.draw("history", [one, other])
    one.arrays["loss"] = np.ones(0)
    with pytest.raises(UsageError, match="holds no losses"):
        figures.draw("history", [one])


def test_scores_has_a_row_for_each_group_and_a_marker_for_each_memory(make):
    runs = [make("er"), *(make(seed=s, settings={"r": 0.4}) for s in range(3)), make(settings={"r": 0.3})]
    figure = figures.draw("scores", runs)
    rows = dict(zip(figure.axes[0].get_yticks(), (t.get_text() for t in figure.axes[0].get_yticklabels()), strict=True))
    assert list(rows.values()) == ["ER", "SCoMMER, r 0.3", "SCoMMER, r 0.4"]
    shown = [("ER", "working", runs[:1])]
    shown += [("SCoMMER, r 0.3", m, runs[4:]) for m in ("working", "long_term")]
    shown += [("SCoMMER, r 0.4", m, runs[1:4]) for m in ("working", "long_term")]
    for ax, setting in zip(figure.axes, ("class_il", "task_il"), strict=True):
        for line, (label, memory, of) in zip(ax.lines, shown, strict=True):
            assert line.get_xdata()[0] == pytest.approx(np.mean([r.accuracy(memory, setting) for r in of]))
            assert rows[min(rows, key=lambda y: abs(y - line.get_ydata()[0]))] == label
            assert (line.get_markerfacecolor() == "white") == (memory == "working" and label != "ER")
        assert len({line.get_ydata()[0] for line in ax.lines}) == 5  # no marker covers another
        widths = [s[1][0] - s[0][0] for c in ax.collections for s in c.get_segments()]
        spread = [2 * np.std([r.accuracy(m, setting) for r in runs[1:4]], ddof=1) for m in ("working", "long_term")]
        assert widths == pytest.approx(spread)
    assert labels(figure) == ["working memory", "long-term memory"]
    assert figure.legends[0].get_title().get_text() == "filled: used for inference; mean ± std of 1 to 3 seeds"
    (gcil,) = figures.draw("scores", [make(**GCIL)]).axes
    assert gcil.get_xlabel() == "Class-IL nested mean (%)"


@pytest.mark.parametrize("name", ["scores", "tasks", "recency", "stability", "history"])
def test_long_labels_are_wrapped_and_not_cut(make, name):
    """Such labels arise where many settings were changed."""
    many = {f"a_setting_with_a_long_name_{i}": [0.9, 0.9, 0.9] for i in range(5)}
    figure = figures.draw(name, [make("er"), *(make(settings=many | {"r": r}) for r in (0.1, 0.2))])
    for text, box in texts(figure):  # a layout warning would be an error
        assert -1 <= box.x0 < box.x1 <= figure.bbox.width + 1, text


# --- style


def test_every_method_has_a_colour_of_its_own():
    colours = [kind.colour for kind in METHODS.values()]
    assert len(set(colours)) == len(colours)


def test_a_method_that_is_not_loaded_has_its_name_and_the_default_colour(make):
    figure = figures.draw("stability", [make("unheard-of"), make("er")])
    assert labels(figure)[1].startswith("unheard-of:")
    assert style.colour("unheard-of") == Method.colour
    assert Method.colour not in {kind.colour for kind in METHODS.values()}


@pytest.mark.parametrize("name", ["scores", "tasks", "recency", "stability", "history", "matrices"])
@pytest.mark.parametrize("tasks", [3, 20])
def test_no_text_is_cut_off_or_too_wide_for_a_column(make, name, tasks):
    classes = 2 * tasks
    stream = {"tasks": tuple((2 * t, 2 * t + 1) for t in range(tasks)), "classes": classes}
    runs = [make(m, s, **stream) for m in ("er", "cls-er", "scommer") for s in (0, 1)]
    runs += [make("scommer", 0, **stream, buffer=500), make("joint", 0, buffer=None, **stream)]
    figure = figures.draw(name, runs)
    if name not in ("matrices", "scores"):
        assert figure.get_figwidth() < 3.5
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in texts(figure):
        assert -1 <= box.x0 < box.x1 <= width + 1, text
        assert -1 <= box.y0 < box.y1 <= height + 1, text


@pytest.mark.parametrize("name", ["tasks", "recency", "stability", "history"])
def test_a_figure_of_many_groups_has_room_for_its_axes(make, name):
    runs = [make("scommer", buffer=b, settings={"r": r}) for b in (30, 40, 50) for r in (0.1, 0.2, 0.3, 0.4, 0.5)]
    figure = figures.draw(name, runs)
    figure.draw_without_rendering()  # a warning would be an error
    key = figure.legends[0].get_window_extent().y0
    for ax in figure.axes:
        box = ax.get_window_extent()
        assert box.height > 40
        assert box.y1 <= key + 1


def test_classes_that_come_back_are_not_counted_twice(make):
    shared = make("er", tasks=((0, 1), (0, 1), (0, 1)), classes=2)
    (ax,) = figures.draw("recency", [shared]).axes
    assert ax.get_xlabel().startswith("task of last appearance")
    assert [bar.get_height() for bar in ax.patches][:2] == [0, 0]
    assert ax.patches[2].get_height() == pytest.approx(50)  # a mean over both classes


def test_equal_records_give_equal_png_svg_and_pdf_files(runs, tmp_path):
    for ending in ("png", "svg", "pdf"):
        paths = [tmp_path / "new" / f"{copy}.{ending}" for copy in "ab"]
        for path in paths:
            figures.save(figures.draw("recency", runs), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
    with Image.open(tmp_path / "new" / "a.png") as picture:
        assert (picture.format, picture.width) == ("PNG", 850)
    svg = (tmp_path / "new" / "a.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg)) <= set(ids)  # every reference has a target
    assert not re.search(r"[0-9a-f]{10}[\")]", svg)  # no id depends on the last bits of a position
    pdf = (tmp_path / "new" / "a.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf  # many journals refuse Type 3 fonts


# --- refused runs


def test_runs_without_the_data_of_a_figure_are_refused(make):
    joint = make("joint", buffer=None)
    for name in ("tasks", "stability"):
        with pytest.raises(UsageError, match="all at once"):
            figures.draw(name, [joint])
        (line,) = figures.left_out(name, [joint, make("er")])
        assert re.match("JOINT: there is nothing .* all at once", line)
        assert labels(figures.draw(name, [joint, make("er")]))[0].startswith("ER")
    assert not figures.left_out("matrices", [joint])
    for name, missing in (("recency", "class_probability/working"), ("history", "loss")):
        with pytest.raises(UsageError, match=f"holds no '{missing}'"):
            figures.draw(name, [make("er", arrays=False)])
    with pytest.raises(UsageError, match="er ran without semantic dropout"):
        figures.draw("codes", [make("er")])
    with pytest.raises(UsageError, match="codes draws one run, and 2 were given"):
        figures.draw("codes", [make(), make(seed=1)])
    with pytest.raises(UsageError, match=r"codes compares classes, and .* has only one"):
        figures.draw("codes", [make(tasks=((0,),), classes=1)])
    with pytest.raises(UsageError, match="did you mean 'codes'"):
        figures.draw("code", [make()])


@pytest.fixture
def folder(make, tmp_path):
    for method in ("er", "scommer"):
        for seed in (0, 1):
            (run := tmp_path / f"{method}-{seed}").mkdir()
            make(method, seed).save(run)
    return tmp_path


def test_the_command_draws_and_says_what_it_left_out(folder, tmp_path, monkeypatch, capsys, call):
    monkeypatch.chdir(tmp_path)
    assert call("figure", "tasks", folder) == 0
    assert capsys.readouterr().out == "tasks: tasks.png\n"
    assert (tmp_path / "tasks.png").stat().st_size > 1000
    assert call("figure", "codes", folder / "scommer-0", "-o", tmp_path / "a" / "codes.PDF") == 0
    assert (tmp_path / "a" / "codes.PDF").read_bytes().startswith(b"%PDF")
    capsys.readouterr()
    assert call("figure", "codes", folder / "scommer-0", folder / "er-0") == 0
    assert "left out, ER: s-made-er-30-seed0 learned no P_s" in capsys.readouterr().out


def test_the_command_warns_of_too_many_groups(make, tmp_path, monkeypatch, capsys, call):
    monkeypatch.chdir(tmp_path)
    for n in range(13):
        (run := tmp_path / "runs" / str(n)).mkdir(parents=True)
        make("er", settings={"epochs": 4 + n}, arrays=False).save(run)
    assert call("figure", "stability", "runs") == 0
    assert "13 groups are hard to tell apart: select fewer, or draw figure scores" in capsys.readouterr().out
    assert call("figure", "scores", "runs") == 0
    assert capsys.readouterr().out == "scores: scores.png\n"
    assert call("compare", "runs", "runs") == 2
    assert re.search(r"ER, epochs 8; and 8 more\): choose", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure", "taks", "."], "unknown figure 'taks': did you mean 'tasks'?"),
        (["figure", "tasks", ".", "-o", "x.gif"], "cannot write 'x.gif': give a name that ends in .png, .svg, .pdf"),
        (["figure", "tasks", "nowhere"], "nowhere holds no finished run: there is no such folder"),
        (["figure", "tasks", ".", "-o", "er-0/record.json/x.png"], "cannot write 'er-0/record.json/x.png'"),
        (["compare", ".", "."], "A mixes settings on s-made (ER; SCoMMER): choose one with a pattern or a condition"),
    ],
)
def test_an_error_is_one_line(folder, monkeypatch, capsys, arguments, message, call):
    monkeypatch.chdir(folder)
    assert call(*arguments) == 2
    out = capsys.readouterr()
    assert message in out.err
    assert out.err.count("\n") == 1


def test_the_command_compares(folder, monkeypatch, capsys, call):
    monkeypatch.chdir(folder)
    assert call("compare", "scommer-*", "er-*") == 0
    out = capsys.readouterr().out
    assert "s-made: A = SCoMMER, B = ER" in out
    assert "Few pairs (2)" in out


def test_the_help_lists_every_figure(capsys, monkeypatch, call):
    monkeypatch.setenv("COLUMNS", "200")
    assert call("figure", "--help") == 0
    shown = capsys.readouterr().out
    for name, kind in FIGURES.items():
        assert f"{name}: {kind.title}"[:60].lower() in shown.lower(), name
    assert "{figures}" not in shown


def test_show_prints_the_statistics(folder, capsys, call):
    assert call("show", folder / "scommer-0") == 0
    out = capsys.readouterr().out
    assert "ECE (%)" in out
    assert "long_term: most forgotten classes (%)" in out


def test_names_of_classes_are_plain_text_of_limited_length(make):
    record = make()
    record.stream.classes[:3] = [r"$\frac{$", "a\x00b", "so long a name that it would leave no room for a figure"]
    figure = figures.draw("codes", [record])
    FigureCanvasAgg(figure).draw()
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert names[:3] == [r"\$\frac{\$", "a?b", "so long a name that it …"]
