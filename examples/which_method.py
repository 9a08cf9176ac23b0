"""Which method for your own data? All of them learn digits and CIFAR-10 features, two classes at a time.

    python examples/which_method.py docs/own-data          # learn, or continue, and draw; about an hour on one core
    python examples/which_method.py docs/own-data --draw   # only draw again

Every method is compared at equal rows (what it may remember of the past) and at equal bytes (the size of all that it
needs to go on learning). Results go to comparison.json as they come. Needs CIFAR-10 (`scommer data get cifar10`).
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from cifar_features import cifar_features
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scommer import LifelongClassifier, provenance
from scommer.analysis.figures import save
from scommer.analysis.figures.style import colour
from scommer.data import load

Array = NDArray[Any]
ROWS, SEEDS, INCREMENTS = (50, 100, 200, 500), (0, 1, 2), 5
USED = 100  # test images of each CIFAR-10 class that the package's tests use: not scored here


class Data(NamedTuple):
    """Examples to learn and to score, of ten classes."""

    x: Array
    y: Array
    xt: Array
    yt: Array


class Learned(NamedTuple):
    """A method's predictions, and the bytes that it needs to keep learning."""

    predict: Callable[[Array], Array]
    bytes: int


# --- the data


def digits() -> Data:
    x, y = load_digits(return_X_y=True)
    x = (x.reshape(-1, 8, 8) / 16).astype(np.float32)
    test = np.arange(len(y)) % 3 == 0
    return Data(x[~test], y[~test], x[test], y[test])


def features(folder: Path | None) -> Data:
    found = cifar_features(load("cifar10", folder), train=1000, test=1000)
    y, yt = found["train_labels"], found["test_labels"]
    rank = np.array([(yt[: i + 1] == c).sum() for i, c in enumerate(yt)])
    return Data(found["train"], y, found["test"][rank > USED], yt[rank > USED])


def increments(data: Data, seed: int) -> Iterator[Array]:
    """The training examples, two classes at a time, in an order that depends on the seed."""
    rng = np.random.default_rng(seed)
    for classes in rng.permutation(10).reshape(INCREMENTS, 2):
        yield rng.permutation(np.flatnonzero(np.isin(data.y, classes)))


# --- the methods


def lifelong(data: Data, rows: int, seed: int, **params: Any) -> Learned:
    model = LifelongClassifier(buffer=rows, seed=seed, device="cpu", **params)
    for part in increments(data, seed):
        model.partial_fit(data.x[part], data.y[part])
    with TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        return Learned(model.predict, Path(folder, "model").stat().st_size)


def logistic(data: Data, rows: int, seed: int) -> Learned:
    """Logistic regression on a memory with the same number of examples of each class, or on everything."""
    rng = np.random.default_rng(seed)
    each = [rng.permutation(np.flatnonzero(data.y == c))[: rows // 10] for c in range(10)]
    return _regression(data, np.concatenate(each))


def everything(data: Data, rows: int, seed: int) -> Learned:
    return _regression(data, np.arange(len(data.y)))


def _regression(data: Data, which: Array) -> Learned:
    x = data.x[which].reshape(len(which), -1)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, data.y[which])
    return Learned(lambda xt: model.predict(xt.reshape(len(xt), -1)), x.nbytes + data.y[which].nbytes)


def network(data: Data, rows: int, seed: int) -> Learned:
    """The same network as the others, trained on everything at once."""
    model = LifelongClassifier(method="sgd", seed=seed, device="cpu").fit(data.x, data.y)
    return Learned(model.predict, data.x.nbytes + data.y.nbytes)


def _of(method: str, variant: str | None = None) -> Callable[[Data, int, int], Learned]:
    return lambda data, rows, seed: lifelong(data, rows, seed, method=method, variant=variant)


METHODS: dict[str, tuple[Callable[[Data, int, int], Learned], str, str]] = {  # with colour and marker
    "SCoMMER plus": (_of("scommer", "plus"), colour("scommer"), "o"),
    "SCoMMER official": (_of("scommer", "official"), colour("scommer"), "x"),
    "DER++": (_of("der++"), colour("der++"), "s"),
    "ER": (_of("er"), colour("er"), "^"),
    "logistic regression on the memory": (logistic, "black", "D"),
    "SLDA": (_of("slda"), colour("slda"), "*"),
    "NCM": (_of("ncm"), colour("ncm"), "P"),
    "network, retrained on everything": (network, "grey", "<"),
    "logistic regression, retrained on everything": (everything, "black", ">"),
}
WITHOUT_MEMORY = ("SLDA", "NCM", "network, retrained on everything", "logistic regression, retrained on everything")


def measure(data: dict[str, Data], path: Path) -> None:
    """Append what is missing to the results."""
    held: dict[str, Any] = {"results": []}
    if path.exists():
        held = json.loads(path.read_text())
    held |= {"versions": provenance.versions()}
    commit = provenance.code_identity()["commit"]
    done = {(r["data"], r["method"], r["rows"], r["seed"]) for r in held["results"]}
    for name, of in data.items():
        for method, (learn, _, _) in METHODS.items():
            for rows in ROWS if method not in WITHOUT_MEMORY else (0,):
                for seed in SEEDS:
                    if (name, method, rows, seed) in done:
                        continue
                    began = time.process_time()
                    found = learn(of, rows or 1, seed)
                    seconds = time.process_time() - began
                    accuracy = round(100 * float(np.mean(found.predict(of.xt) == of.yt)), 2)
                    print(f"{name}, {method}, {rows} rows, seed {seed}: {accuracy:.1f} %, {seconds:.0f} s", flush=True)
                    held["results"].append({
                        "data": name, "method": method, "rows": rows, "seed": seed, "accuracy": accuracy,
                        "bytes": found.bytes, "seconds": round(seconds, 1), "commit": commit,
                    })  # fmt: skip
                    path.write_text(json.dumps(held, indent=1) + "\n")


# --- the picture


def draw(results: list[dict[str, Any]], titles: dict[str, str]) -> Figure:
    figure = Figure((8, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for row, name in zip(axes, titles, strict=True):
        for ax, by in zip(row, ("rows", "bytes"), strict=True):
            for method, (_, tint, marker) in METHODS.items():
                own = [r for r in results if (r["data"], r["method"]) == (name, method)]
                _line(ax, own, by, color=tint, marker=marker, label=method)
            ax.set_xscale("log")
            ax.set_title(titles[name], loc="left", fontsize=9)
            ax.grid(alpha=0.2)
        row[0].set_ylabel("accuracy, %")
        row[0].set_xlabel("rows remembered (lines across: none, or all)")
        row[0].set_xticks(ROWS, [str(n) for n in ROWS], minor=False)
        row[0].minorticks_off()
        row[1].set_xlabel("bytes needed to go on learning")
        row[1].xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        row[1].xaxis.set_major_formatter(EngFormatter("B", 0))
        row[1].minorticks_off()
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    return figure


def _line(ax: Axes, results: list[dict[str, Any]], by: str, **look: Any) -> None:
    """Draw means over seeds with their deviation; a line across for a method that has one size only."""
    sizes = sorted({r["rows"] for r in results})
    scores = [[r["accuracy"] for r in results if r["rows"] == n] for n in sizes]
    mean, deviation = np.mean(scores, 1), np.std(scores, 1, ddof=1)
    if sizes == [0] and by == "rows":
        ax.axhline(mean[0], linewidth=1, linestyle="--", color=look["color"])
        ax.plot([], [], linestyle="--", **look)
        x: Any = [ROWS[-1] * 1.15]
        ax.plot(x, mean, color=look["color"], marker=look["marker"], linestyle="")
        return
    x = sizes if by == "rows" else [np.mean([r["bytes"] for r in results if r["rows"] == n]) for n in sizes]
    ax.errorbar(x, mean, deviation, capsize=2, linewidth=1, markersize=5, **look)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of comparison.json and comparison.png")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--draw", action="store_true", help="only draw")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "comparison.json"
    if not given.draw:
        torch.set_num_threads(1)
        measure({"digits": digits(), "features": features(given.data)}, path)
    titles = {"digits": "Digits, 8 × 8 pixels", "features": "CIFAR-10, 256 features of pixels"}
    save(draw(json.loads(path.read_text())["results"], titles), given.output / "comparison.png")


if __name__ == "__main__":
    main()
