"""The page of `scommer report`: its numbers recomputed from the records, and that no record can inject code."""

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from io import BytesIO
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from scipy.stats import ttest_rel
from typer.main import get_command

from scommer.analysis.report import report
from scommer.analysis.selection import load_records as load
from scommer.cli import app
from scommer.runs import presets
from scommer.runs.experiment import Experiment, prepare
from scommer.runs.facts import DeviceFacts
from scommer.runs.record import Record
from scommer.runs.settings import as_dict, parse, written

ROOT = Path(__file__).parents[2]
RUNS = [
    *(ROOT / "docs" / "records").glob("s-digits-*-[35]0-*"),
    *(ROOT / "results").glob("gcil-uniform-scommer-200-seed[01]-*"),
]
VOID = {"meta", "link", "img", "br"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style>&amp;{{ 7*7 }}",
    r"$\frac{$",
    "a\x00b",
]


class Page(HTMLParser):
    """Tags with their attributes, texts by tag, and tables by the id of their caption."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.tables, self.texts = [], [], {}, {}
        self.row = self.table = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.texts.setdefault(tag, []).append("") if tag not in VOID else None
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self.table = self.tables[attributes["id"]] = []
        elif tag == "tr":
            self.row = []
        elif tag in ("th", "td"):
            self.row.append(["", attributes.get("data-value")])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag  # every tag is closed once
        if tag == "tr":
            self.table.append([tuple(cell) for cell in self.row])

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            self.row[-1][0] += data

    def rows(self, key):
        """The rows of a table, each a dict from column to (text, sort value)."""
        (head, *rest) = self.tables[key]
        return [dict(zip([text for text, _ in head], row, strict=True)) for row in rest]


@pytest.fixture(scope="module")
def page():
    return Page(report(load(RUNS)))


def raw(pattern):
    """Records as plain JSON and arrays, without our own reader."""
    found = []
    for folder in sorted(path for path in RUNS if path.match(pattern)):
        with np.load(folder / "arrays.npz") as arrays:
            found.append((json.loads((folder / "record.json").read_text()), dict(arrays)))
    return found


def spread(values, digits=2):
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


SETS = {  # by section and label
    ("s1", "SCoMMER, warmup 30"): "gcil-uniform-*",
    ("s2", "ER, buffer 30"): "s-digits-er-30-*",
    ("s2", "ER, buffer 50"): "s-digits-er-50-*",
    ("s2", "SCoMMER, buffer 30"): "s-digits-scommer-30-*",
    ("s2", "SCoMMER, buffer 50"): "s-digits-scommer-50-*",
}


# --- numbers


def from_matrix(r, untrained):
    """Accuracy, forgetting and transfer by their definitions, without arrays."""
    last, n = len(r) - 1, len(r) - 1
    return {
        "accuracy": statistics.fmean(r[last]),
        "last": r[last][last],
        "forgetting": sum(max(r[t][i] for t in range(last)) - r[last][i] for i in range(n)) / n,
        "BWT": sum(r[last][i] - r[i][i] for i in range(n)) / n,
        "FWT": sum(r[i - 1][i] - untrained[i] for i in range(1, n + 1)) / n,
    }


def test_every_score_follows_from_the_matrices(page):
    checked = 0
    for (section, label), pattern in SETS.items():
        runs = raw(pattern)
        rows = [row for row in page.rows(f"{section}-scores") if row["method"][0] == label]
        views = runs[0][0]["matrices"]
        assert len(rows) == sum(map(len, views.values()))
        for row in rows:
            setting = {"Class-IL": "class_il", "Task-IL": "task_il"}[row["setting"][0]]
            memory = row["memory"][0]
            scores = [from_matrix(r["matrices"][memory][setting], r["untrained"][setting]) for r, _ in runs]
            columns = set(row) - {"method", "memory", "setting", "seeds"}
            gcil = section == "s1"
            assert columns == {"forgetting", "BWT", *(("nested mean", "last") if gcil else ("accuracy", "FWT"))}
            for column in columns:
                values = [s[column.replace("nested mean", "accuracy")] for s in scores]
                text, key = row[column]
                assert text in {spread([v + tie for v in values]) for tie in (-1e-9, 1e-9)}
                assert float(key) == pytest.approx(statistics.fmean(values))
                checked += 1
            assert row["seeds"][0] == str(len(runs))
    assert checked == 4 * 4 + 4 * 4 + 2 * 8 * 4


def measured(record, arrays, memory):
    """The statistics by their definitions, class by class."""
    p, tasks = arrays[f"class_probability/{memory}"], record["stream"]["tasks"]
    last = {c: t for t, members in enumerate(tasks) for c in members}
    recent, earlier = ([p[c] for c in last if (last[c] == len(tasks) - 1) == now] for now in (True, False))
    found = {"recency bias": np.mean(recent) / np.mean(earlier)}
    bins = arrays[f"reliability/{memory}"]
    found["ECE (%)"] = 100 * sum(abs(c - h) for _, c, h in bins) / sum(n for n, _, _ in bins)
    stage = max(int(k.split("/")[-1]) for k in arrays if k.startswith("activity/working/"))
    if f"activity/{memory}/{stage}" in arrays:
        a = arrays[f"activity/{memory}/{stage}"].astype(float)
        within, between = [], []
        for c, d in combinations(sorted(last), 2):
            met = any(c in members and d in members for members in tasks)
            (within if met else between).append(a[c] @ a[d] / (np.linalg.norm(a[c]) * np.linalg.norm(a[d])))
        found["overlap within"], found["overlap between"] = np.mean(within), np.mean(between)
        if f"p_s/{stage}" in arrays:
            p_s = arrays[f"p_s/{stage}"].astype(float)
            r = [np.corrcoef(a[c], p_s[c])[0, 1] for c in range(len(a)) if a[c].std() and p_s[c].std()]
            found["r with P_s"] = np.mean(r)
    return found


def test_every_statistic_follows_from_the_arrays(page):
    for (section, label), pattern in SETS.items():
        runs = raw(pattern)
        rows = [row for row in page.rows(f"{section}-measures") if row["method"][0] == label]
        assert [row["memory"][0] for row in rows] == list(runs[0][0]["matrices"])
        for row in rows:
            each = [measured(r, arrays, row["memory"][0]) for r, arrays in runs]
            for column in set(row) - {"method", "memory"}:
                if column not in each[0]:
                    assert row[column] == ("–", None)
                    continue
                values = [float(found[column]) for found in each]
                assert float(row[column][1]) == pytest.approx(statistics.fmean(values), rel=1e-5)
                shown = [float(v) for v in row[column][0].split(" ± ")]
                digits = 1 if "%" in column else 3
                expected = [statistics.fmean(values), *([statistics.stdev(values)] if len(values) > 1 else [])]
                assert shown == pytest.approx(expected, abs=0.51 * 10**-digits)


def test_the_most_forgotten_classes_lost_most(page):
    for (section, label), pattern in SETS.items():
        runs = raw(pattern)
        memory = runs[0][0]["inference"]
        lost = np.array(
            [np.maximum(a[:-1].max(0) - a[-1], 0) for _, x in runs for a in [x[f"class_accuracy/{memory}"]]]
        )
        names = runs[0][0]["stream"]["classes"]
        rows = [row for row in page.rows(f"{section}-forgotten") if row["method"][0] == label]
        assert len(rows) == 5
        shown = [float(row["lost"][1]) for row in rows]
        assert shown == pytest.approx(sorted(lost.mean(0), reverse=True)[:5])
        for row in rows:
            c = names.index(row["class"][0])
            assert float(row["lost"][1]) == pytest.approx(lost[:, c].mean())
            best, end = (
                [f(x[f"class_accuracy/{memory}"][:, c]) for _, x in runs]
                for f in (lambda a: a[:-1].max(), lambda a: a[-1])
            )
            assert float(row["best"][1]) == pytest.approx(np.mean(best))
            assert float(row["at the end"][1]) == pytest.approx(np.mean(end))
            share = (100 * lost / lost.sum(1, keepdims=True))[:, c]
            assert float(row["share of all lost"][1]) == pytest.approx(share.mean())


def test_the_summary_and_the_runs_show_the_memory_that_answers(page):
    summary = {(row["stream"][0], row["method"][0]): row for row in page.rows("summary-table")}
    assert len(summary) == len(SETS)
    for (section, label), pattern in SETS.items():
        runs = raw(pattern)
        stream = runs[0][0]["stream"]["name"]
        ends = [statistics.fmean(r["matrices"][r["inference"]]["class_il"][-1]) for r, _ in runs]
        assert summary[stream, label]["Class-IL"][0] == spread(ends)
        assert ("–" in summary[stream, label]["Task-IL"][0]) == (stream == "gcil-uniform")
        each = {row["run"][0]: row for row in page.rows(f"{section}-runs")}
        for (r, _), end in zip(runs, ends, strict=True):
            assert each[r["name"]]["Class-IL"][0] == f"{end:.2f}"
            assert each[r["name"]]["seed"][0] == str(r["experiment"]["seed"])
    for buffer in (30, 50):
        best = rf"with a buffer of {buffer}, 20 epochs and 3 seeds, SCoMMER, buffer {buffer} \([\d.]+ ± [\d.]+ %\) has"
        assert any(re.search(best, text) for text in page.texts["li"])


def test_only_runs_with_equal_buffers_epochs_and_numbers_of_seeds_are_ranked(make):
    def ranked(*runs):
        return [text for text in Page(report(list(runs))).texts["li"] if "highest" in text]

    def short(record):
        record.settings["epochs"] = 3
        return record

    assert len(ranked(make("er"), make("der++"))) == 1
    assert "chance" in ranked(make("er"), make("der++"))[0]
    assert not ranked(make("er", buffer=50), make("der++", buffer=200))
    assert not ranked(make("er"), short(make("der++")))
    assert not ranked(make("er", 0), make("er", 1), make("der++"))
    assert not ranked(make("er"), make("joint", buffer=None))
    (both,) = ranked(*(make(method, seed) for method in ("er", "der++") for seed in (0, 1)))
    more = [make(method, seed) for method in ("er", "der++") for seed in (0, 1)] + [make("er-ace"), make("agem")]
    assert ranked(*more) == [both]  # single seeds say little next to these
    ends = {m: [make(m, seed).accuracy() for seed in (0, 1)] for m in ("er", "der++")}
    first, second = sorted(ends.values(), key=lambda values: -sum(values))
    interval = ttest_rel(first, second).confidence_interval(0.95)
    assert f"by {statistics.fmean(first) - statistics.fmean(second):.2f} points" in both
    assert f"{interval.low:.2f} to {interval.high:.2f}" in both
    assert ("includes 0" in both) == (interval.low < 0 < interval.high)


def test_matrices_are_means_over_seeds(page):
    tables = [page.tables[f"s2-matrix-{i}"] for i in range(1, 5)]
    for (_, *rows), pattern in zip(tables, [p for (s, _), p in SETS.items() if s == "s2"], strict=True):
        mean = np.mean([r["matrices"][r["inference"]]["class_il"] for r, _ in raw(pattern)], 0)
        shown = [[float(text) for text, _ in row[1:]] for row in rows]
        assert shown == [pytest.approx(line, abs=0.0501) for line in mean]


# --- settings and how to reproduce


def test_settings_are_split_into_differing_partial_and_shared(page):
    differ = {row["setting"][0]: [text for text, _ in list(row.values())[1:]] for row in page.rows("s2-differences")}
    assert differ == {"method": ["ER"] * 2 + ["SCoMMER"] * 2, "buffer": ["30", "50"] * 2}
    partial = {row["setting"][0]: row for row in page.rows("s2-partial")}
    assert (partial["alpha"]["ER, buffer 30"][0], partial["alpha"]["SCoMMER, buffer 50"][0]) == ("–", "0.97")
    shared = {row["setting"][0]: row["value"][0] for row in page.rows("s2-shared")}
    shown = set(differ) | set(partial) | set(shared)
    for r, _ in raw("s-digits-*"):
        assert set(r["settings"]) <= shown
        assert all(shared[k] == written(v) for k, v in r["settings"].items() if k in shared)


def asked(command):
    """The experiments that our command line parses from a command."""
    words = shlex.split(command)
    assert words[:2] == ["scommer", "run"]
    run = get_command(app).commands["run"]
    given = run.make_context("run", words[2:]).params
    overrides = dict(parse(s) for s in given["settings"] or [])
    seeds = given["seeds"] or [given["seed"]]
    e = [Experiment(given["stream"], given["method"], given["buffer"], s, given["variant"], given["validation"],
                    overrides) for s in seeds]  # fmt: skip
    return e, given


def test_the_commands_repeat_exactly_these_runs(page):
    commands = page.texts["code"]
    digits = [e for c in commands if c.startswith("scommer run s-digits") for e in asked(c)[0]]
    names = {prepare(e).name for e in digits}  # a name contains a hash of all settings and the stream
    assert names == {r["name"] for r, _ in raw("s-digits-*")}
    (gcil,) = (c for c in commands if "gcil-uniform" in c)
    earlier = "--set warmup=30"  # of the preset that these runs had
    assert gcil == (
        f"scommer run gcil-uniform --method scommer --buffer 200 --seeds 0 1 {earlier} --device cuda --precision bf16"
    )


def test_a_command_sets_the_changes_to_the_preset(make):
    settings = as_dict(*presets.resolve("s-digits", "er", 50, "official"))
    changed = settings | {"lr": 0.05, "std": [0.5], "width": 8, "network": "mlp", "flip": True}
    record = make("er", 3, stream="s-digits", buffer=50, settings=changed)
    record.settings = changed
    record.experiment = replace(record.experiment, validation=0.1)
    page = Page(report([record]))
    (command,) = (c for c in page.texts["code"] if c.startswith("scommer run"))
    (e,), given = asked(command)
    assert (e.seed, e.validation, given["device"], given["precision"]) == (3, 0.1, "cpu", "fp32")
    assert as_dict(*presets.resolve("s-digits", "er", 50, "official", e.settings)) == changed
    assert any("scored on held-out training images" in text for text in page.texts["strong"])


def test_a_users_stream_is_not_mistaken_for_a_preset_of_the_same_name(make):
    record = make("er", stream="s-digits", buffer=50)
    assert any(c.startswith("scommer run s-digits") for c in Page(report([record])).texts["code"])
    record.experiment = replace(record.experiment, given={})  # as for a stream without presets
    assert not any(c.startswith("scommer run s-digits") for c in Page(report([record])).texts["code"])


def test_code_device_and_versions_are_shown(page):
    facts = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))  # the last of each name, those of s-digits, win
    (r, _) = raw("s-digits-er-30-seed0-*")[0]
    assert facts["commit"] == r["code"]["commit"]
    assert facts["torch"] == r["versions"]["torch"]
    assert facts["precision"] == "fp32"
    times = {row["run"][0]: row for row in page.rows("s2-computed")}
    assert times[r["name"]]["minutes"][0] == f"{r['times']['seconds'] / 60:.1f}"
    assert times[r["name"]]["finished"][0] == r["times"]["finished"]


def test_runs_of_several_commits_are_marked(make):
    one, other = make("er"), make("er", 1)
    one.code, other.code = replace(one.code, commit="a" * 40), replace(one.code, commit="b" * 40, dirty=True)
    page = Page(report([one, other]))
    assert any("differ in commit: aaaaaaaaaaaa, bbbbbbbbbbbb" in text for text in page.texts["li"])
    assert [row["commit"][0] for row in page.rows("s1-computed")] == ["a" * 40, "b" * 40 + ", with changes"]


# --- figures


def images(page):
    return [a for tag, a in page.tags if tag == "img" and a.get("src")]


def test_every_figure_is_a_self_contained_image(page):
    shown = Counter(a["class"].split()[0] for tag, a in page.tags if tag == "figure")
    assert shown == {"scores": 1, "tasks": 2, "history": 2, "recency": 2, "stability": 2, "matrices": 2, "codes": 3}
    kinds = set()
    for image in images(page):
        kind, content = image["src"].split(",", 1)
        kinds.add(kind)
        assert len(image["alt"]) > 20
        if kind == "data:image/png;base64":  # many lines take less as pixels
            with Image.open(BytesIO(b64decode(content))) as picture:
                assert picture.size[0] > 600
                assert len(b64decode(content)) < 250_000
            continue
        svg = ElementTree.fromstring(b64decode(content))
        assert svg.tag == "{http://www.w3.org/2000/svg}svg"
        links = [v for node in svg.iter() for k, v in node.attrib.items() if k.endswith("href")]
        assert all(link.startswith(("#", "data:")) for link in links)
    assert kinds == {"data:image/svg+xml;base64", "data:image/png;base64"}


@pytest.mark.long
def test_a_report_of_all_our_runs_stays_small():
    """Under 3 MB for a hundred runs."""
    records = load([ROOT / "results"])
    assert len(records) > 100
    assert len(report(records).encode()) / len(records) < 3e6 / 100


def test_the_page_says_what_figures_do_not_show(make):
    page = Page(report([make("joint", buffer=None), make("er", arrays=False), make("cls-er")]))
    figures = [a["class"].split()[0] for tag, a in page.tags if tag == "figure"]
    assert figures == ["scores", "tasks", "history", "recency", "stability", "matrices"]
    said = page.texts["li"]
    for line in (
        "tasks, JOINT: there is nothing to follow",
        "history, ER: s-made-er-30-seed0 holds no 'loss'",
        "codes, CLS-ER: s-made-cls-er-30-seed0 learned no P_s",
    ):
        assert any(text.startswith(line) for text in said), line


def test_only_some_large_figures_are_drawn(make):
    text = report([make(settings={"lr": 0.1 * i}) for i in range(1, 7)])
    page = Page(text)
    assert sum(a.get("class", "").startswith("codes") for tag, a in page.tags if tag == "figure") == 4
    assert sum("left out, only the first 4 are drawn" in line for line in page.texts["li"]) == 2
    assert len(text) < 3_000_000


def test_with_too_many_groups_presets_are_drawn_and_long_tables_are_folded(make):
    runs = [make("er"), *(make(settings={"r": r / 20}) for r in range(1, 17))]
    for r in runs:
        r.experiment = replace(r.experiment, given={"r": r.settings["r"]} if r.settings.get("r", 0.5) != 0.5 else {})
    text = report(runs)
    page = Page(text)
    alts = {a["alt"].split(".")[0]: a["alt"] for a in images(page)}
    assert alts["Accuracy at the end"].count("SCoMMER") == 16
    assert alts["Training loss and accuracy over time"].endswith("Shown: ER; SCoMMER, r 0.5.")
    assert "the others show ER; SCoMMER, r 0.5." in text
    folded = [line for line in page.texts["summary"] if line.endswith(" rows")]
    assert f"Accuracy, forgetting and transfer of each memory (%): {2 + 16 * 4} rows" in folded
    assert not any("Recency" in line for line in folded)  # a table of 33
    few = report(runs[:12])
    assert "too many sets" not in few
    assert "46 rows" not in few


# --- the page


def test_the_page_loads_nothing_else(page):
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster", "background"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, name)
    (css,), (js,) = page.texts["style"], page.texts["script"]
    assert not re.search(r"url\(|@import|https?:", css)
    assert not re.search(r"https?:|fetch|XMLHttp|import\(", js)
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_ids_are_unique_and_references_have_targets(page):
    ids = Counter(a["id"] for _, a in page.tags if "id" in a)
    assert max(ids.values()) == 1
    assert {a["href"][1:] for tag, a in page.tags if tag == "a"} <= set(ids)
    assert {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a} <= set(ids)


@pytest.fixture
def hostile(make):
    """Records in which every name tries to inject code."""
    runs = []
    for method, seed in (("scommer", 0), ("scommer", 1), ("er", 0)):
        r = make(
            method, seed, stream=HOSTILE[0], settings={"note": HOSTILE[1], "own": HOSTILE[2] if method == "er" else "x"}
        )
        r.stream.classes[:] = [*HOSTILE, "class_5"]
        r.name = f"{HOSTILE[1]}-{method}-{seed}"
        r.device = DeviceFacts(name=HOSTILE[2], precision=HOSTILE[0], type=HOSTILE[1])
        r.code, r.versions[HOSTILE[1]] = replace(r.code, commit=HOSTILE[0]), HOSTILE[2]
        r.times = replace(r.times, finished=HOSTILE[1])
        runs.append(r)
    return runs


def test_names_are_always_escaped(hostile, make):
    page, tame = Page(report(hostile)), Page(report([make("scommer"), make("scommer", 1), make("er")]))
    kinds, usual = (Counter(tag for tag, _ in p.tags) for p in (page, tame))
    for tag in ("script", "style", "img", "iframe", "link", "meta", "form", "dialog"):
        assert kinds[tag] == usual[tag], tag
    assert not any(name.startswith("on") or name == "style" for _, a in page.tags for name in a)
    assert page.texts["h2"][1] == HOSTILE[0]
    assert {row["class"][0] for row in page.rows("s1-forgotten")} <= {*HOSTILE, "class_5"}
    (er,) = (cell for label, cell in page.rows("s1-differences")[-1].items() if label.startswith("ER"))
    assert HOSTILE[2] in er[0]
    assert len(images(page)) == len(images(tame))
    for image in images(page):
        if "svg" in image["src"][:20]:
            ElementTree.fromstring(b64decode(image["src"].split(",", 1)[1]))


def test_equal_records_give_equal_pages_in_any_order(make):
    runs = [make("scommer"), make("scommer", 1), make("er", stream="other")]
    assert report(runs) == report(runs[::-1])


def test_another_process_writes_the_same_page(tmp_path):
    run = next((ROOT / "docs" / "records").glob("s-digits-scommer-30-seed0-*"))
    environment = os.environ | {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    command = [sys.executable, "-m", "scommer", "report", run, "-o", tmp_path / "page.html"]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    assert (tmp_path / "page.html").read_text() == report([Record.load(run)])


def test_two_orders_of_one_stream_are_two_sections(make):
    page = Page(report([make("er"), make("er", tasks=((4, 5), (0, 1), (2, 3)))]))
    assert len(page.texts["h2"]) == 3
    assert page.texts["h2"][1] != page.texts["h2"][2]


# --- the command


@pytest.fixture
def folder(make, tmp_path):
    (run := tmp_path / "runs" / "er-0").mkdir(parents=True)
    make("er").save(run)
    return tmp_path


def test_the_command_writes_the_page_and_its_folder(folder, monkeypatch, capsys, call):
    monkeypatch.chdir(folder)
    assert call("report", "runs", "-o", "new/deep/r.html") == 0
    assert capsys.readouterr().out == "report of 1 run: new/deep/r.html\n"
    assert (folder / "new/deep/r.html").read_text() == report([Record.load(folder / "runs" / "er-0")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere holds no finished run: there is no such folder"),
        (["empty"], "empty holds no finished run: there is no record.json in it or below it"),
        (["runs", "-o", "runs/er-0/record.json"], "give a name that ends in .html"),
        (["runs", "-o", "runs/er-0/record.json/x.html"], "cannot write 'runs/er-0/record.json/x.html'"),
        (["runs", "-o", "taken.html"], "cannot write 'taken.html': Is a directory"),
    ],
)
def test_an_error_is_one_line(folder, monkeypatch, capsys, arguments, message, call):
    monkeypatch.chdir(folder)
    for made in ("empty", "taken.html"):
        Path(made).mkdir()
    assert call("report", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_all_files_of_the_page_are_part_of_the_package():
    import tomllib

    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["scommer"]
    package = Path(str(files("scommer")))
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    others = {p for p in (package / "analysis").rglob("*") if p.suffix in (".html", ".css", ".js")}
    assert len(others) == 4
    assert others <= packed
