"""Class codes of the last stage: test activity, the learned P_s, and how far classes overlap, as in Figure 4."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scommer.analysis.figures import style
from scommer.analysis.groups import Group
from scommer.analysis.measures import array, code_correlation, code_similarity, last_stage, learned_code
from scommer.errors import UsageError

MANY = 20  # classes: with more, names do not fit around a square, and the most similar pairs are listed instead
PAIRS = 25
LONGEST = 24  # characters of a class name


def check(group: Group) -> None:
    """Refuse runs without learned codes, or with a single class."""
    for record in group.records:
        learned_code(record)
        array(record, f"activity/{record.inference}/{last_stage(record)}")
        if len({c for task in record.stream.tasks for c in task}) < 2:
            raise UsageError(f"codes compares classes, and {record.name} has only one")


def figure(groups: Sequence[Group]) -> Figure:
    """Draw activity, P_s, the correlation of the two for each class, and the similarity between classes."""
    runs = [r for g in groups for r in g.records]
    if len(runs) > 1:
        raise UsageError(f"codes draws one run, and {len(runs)} were given: units of two networks do not correspond")
    (record,) = runs
    stream, p_s = record.stream, learned_code(record).astype(np.float64)
    activity = array(record, f"activity/{record.inference}/{last_stage(record)}").astype(np.float64)
    order = list(dict.fromkeys(c for task in stream.tasks for c in task))  # in the order of their first task
    if stream.kind == "gcil":
        order.sort()
    activity, p_s = activity[order], p_s[order]
    names = [style.plain(stream.classes[c].replace("_", " "), LONGEST) for c in order]
    counts = activity / np.maximum(activity.max(1, keepdims=True), 1)  # relative to the class's most active unit
    units = np.lexsort((-p_s.max(0), p_s.argmax(0)))  # next to each other if the same class keeps them most

    many = len(names) > MANY
    made = Figure(figsize=(style.PAGE, 8.2 if many else 4.2), layout="constrained")
    left, right = made.subfigures(1, 2, squeeze=False, width_ratios=(2.1, 1) if many else (1.3, 1))[0]
    if many:
        axes = left.subplot_mosaic([list("APr")], width_ratios=(3, 3, 1.2))
        axes |= right.subplot_mosaic([["S"], ["T"]], height_ratios=(2, 3))
        _pairs(axes["T"], code_similarity(activity), names)
    else:
        axes = left.subplot_mosaic([["A"], ["P"]]) | right.subplot_mosaic([["S"], ["r"]], height_ratios=(3, 2))
    filters = f"{len(units)} filters, by class of highest $P_s$"
    _heatmap(axes["A"], counts[:, units], "activation count, test set", "share of class maximum", names, many)
    _heatmap(axes["P"], p_s[:, units], "learned $P_s$", "probability of being kept", names, many)
    axes["P"].set_xlabel(filters)
    if many:
        axes["A"].set_xlabel(filters)
        axes["P"].set_yticks([])
    _correlation(axes["r"], code_correlation(activity, p_s), names, style.colour(record.experiment.method), many)
    _similarity(axes["S"], code_similarity(activity), names, many)
    return made


def _heatmap(ax: Axes, values: np.ndarray, title: str, scale: str, names: list[str], many: bool) -> None:
    """Draw classes by filters; the scale leaves out the lowest values, so that the others stay distinguishable."""
    image = ax.imshow(values, aspect="auto", cmap="Greys", vmin=np.quantile(values, 0.05), interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label=scale, location="bottom" if many else "right", pad=0.01,
                       extend="min", aspect=40 if many else 20)  # fmt: skip
    ax.set_title(title)
    ax.set_yticks(range(len(names)), names, fontsize=5 if many else 6)


def _similarity(ax: Axes, similarity: np.ndarray, names: list[str], many: bool) -> None:
    apart = similarity[~np.eye(len(names), dtype=bool)]  # the 1 of a class with itself would hide the others
    image = ax.imshow(similarity, cmap="Greys", vmin=np.nanmin(apart), vmax=np.nanmax(apart))
    bar = ax.figure.colorbar(image, ax=ax, location="bottom" if many else "right", label="cosine similarity", pad=0.02)
    bar.locator = MaxNLocator(4)
    ax.set_title("similarity of class codes")
    at = [] if many else range(len(names))
    ax.set_xticks(at, [names[i] for i in at], rotation=90)
    ax.set_yticks(at, [names[i] for i in at])


def _correlation(ax: Axes, r: np.ndarray, names: list[str], hue: str, many: bool) -> None:
    """Draw bars in the order of the rows next to them or, for few classes, above their names."""
    if many:
        ax.set_title(f"correlation\nmean {np.nanmean(r):.2f}")
        ax.barh(range(len(names)), r, color=hue, height=0.7)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_yticks([])
        ax.axvline(0, color="black", linewidth=0.5)
        ax.set_xlabel("Pearson's $r$")
    else:
        ax.set_title(f"correlation of counts with $P_s$, mean {np.nanmean(r):.2f}")
        ax.bar(range(len(names)), r, color=hue, width=0.7)
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.axhline(0, color="black", linewidth=0.5)
        ax.set_ylabel("Pearson's $r$ over filters")


def _pairs(ax: Axes, similarity: np.ndarray, names: list[str]) -> None:
    """List the most similar pairs by name."""
    c, d = np.triu_indices(len(names), 1)
    best = np.argsort(-similarity[c, d], kind="stable")[:PAIRS]
    ax.set_title("most similar pairs")
    ax.plot(similarity[c[best], d[best]], range(len(best)), "o", color="black")
    ax.set_yticks(range(len(best)), [f"{names[c[b]]}, {names[d[b]]}" for b in best])
    ax.invert_yaxis()
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.set_xlabel("cosine similarity")
