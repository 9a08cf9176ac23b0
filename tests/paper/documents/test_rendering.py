"""Templates: what they can say, how they fail, and how their text is wrapped."""

import json
from pathlib import Path

import numpy as np
import pytest
from made_up import record, write

from scommer.errors import UsageError
from scommer.paper.documents.rendering import TEMPLATES, documents, render, wrapped
from scommer.paper.documents.vocabulary import chance_of_star, digits, ordinal, relative, words


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Runs of SCoMMER and ER, one of SCoMMER with another setting, and one of another precision."""
    ours = [record(seed, a) for seed, a in enumerate((66.0, 67.0, 71.0))]
    theirs = [record(seed, a, method="er") for seed, a in enumerate((60.0, 68.0, 64.0))]
    write(tmp_path / "results", *ours, *theirs, record(0, 50.0, r=0.4))
    write(tmp_path / "docs" / "precision", record(1, 68.5, precision="tf32"))
    return tmp_path


def test_numbers_come_from_records_and_the_paper(root: Path) -> None:
    source = """\
{% set ours = runs("s-cifar10", "scommer", 200) %}
{% set theirs = runs("s-cifar10", "er", 200) %}
{% set cell = cell("main", "scommer, 200") %}
{{ ours.mean }} and {{ cell.paper }}, {{ -cell.difference | digits(1) }} lower
{{ diff(ours, theirs).ahead }} of {{ ours.seeds | length | words }}
{{ runs("s-cifar10", "scommer", 200, r=0.4).value }}
{{ select("docs/precision").value }} {{ same_runs(select("docs/precision"), "results").value }}
"""
    text = render(root, source)
    assert text == "68.00 and 69.19, 1.2 lower\n2 of three\n50.00\n68.50 67.00\n"  # of 66, 67, 71 and 60, 68, 64


def test_a_part_of_a_table_is_markdown(root: Path) -> None:
    lines = render(root, '{{ table("main", ["er, 200"]) }}').splitlines()
    assert lines[2] == "| er, 200 | s-cifar10 | Class-IL | 64.00 ± 4.00 | 3 | 44.79 ± 1.86 | +19.21 | * |"
    assert len(lines) == 2 + 6  # a line for each column of the table


def test_timings_come_from_bench_records(root: Path) -> None:
    timings = [
        {"what": "compiled, one learner", "ms": 1.534, "mib": 512.0},
        {"what": "compiled, 4 learners side by side", "ms": 1.1},
    ]
    (root / "results" / "bench").mkdir()
    (root / "results" / "bench" / "gpu.json").write_text(json.dumps({"timings": timings, "floor_ms": 1.2}))
    text = '{% set b = bench("gpu") %}{{ b.ms() }} {{ b.ms(learners=4) }} {{ b.gib() }} {{ b.floor_ms }}'
    assert render(root, text) == "1.53 1.10 0.50 1.20"
    with pytest.raises(UsageError, match=r"did not time 'eager, one learner': it has compiled, one learner"):
        render(root, '{{ bench("gpu").ms("eager") }}')
    with pytest.raises(UsageError, match=r"no bench 'cpu' in .*: there are gpu"):
        render(root, '{{ bench("cpu").ms() }}')


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{{ runs("s-cifar100", "scommer", 200).mean }}', ["s-cifar100", "scommer", "200"]),
        ('{{ runs("s-cifar10", "scommer", 200, r=0.9).mean }}', ["s-cifar10", "r=0.9"]),
        ('{{ cell("main", "der++, 200").mean }}', ["main", "der++, 200", "er, 200"]),
        ('{{ select("results@buffer=300").mean }}', ["buffer=300", "200"]),
        ('{{ runs("s-cifar10", "scommer", 200).of("stable").mean }}', ["stable", "long_term"]),
        ("{{ missing }}", ["missing"]),
        ("{{ claimed( }}", [")"]),
    ],
)
def test_a_template_that_names_what_is_not_there_fails(root: Path, text: str, names: list[str]) -> None:
    """The message has the template, the line and the selection."""
    with pytest.raises(UsageError) as failure:
        render(root, f"one\ntwo\n{text}\n", "page.md.jinja")
    message = str(failure.value)
    assert message.startswith("page.md.jinja, line 3: ")
    assert all(name in message for name in names), message


def test_a_claim_renders_nothing_and_fails_where_it_does_not_hold(root: Path) -> None:
    lead = 'diff(runs("s-cifar10", "scommer", 200), runs("s-cifar10", "er", 200)).ahead'
    text = 'A.\n{% do claim("SCoMMER is ahead with each seed", LEAD == SEEDS) %}\nB.\n'.replace("LEAD", lead)
    assert render(root, text.replace("SEEDS", "2")) == "A.\nB.\n"
    with pytest.raises(UsageError, match=r"page, line 2: .*SCoMMER is ahead with each seed"):
        render(root, text.replace("SEEDS", "3"), "page")


def test_templates_mirror_the_paths_of_their_documents(root: Path) -> None:
    folder = root / TEMPLATES / "docs"
    folder.mkdir(parents=True)
    (folder / "page.md.jinja").write_text('# {{ runs("s-cifar10", "er", 200).mean }}\n')
    ((path, text),) = documents(root).items()
    assert path == Path("docs/page.md")
    assert text.startswith("<!-- ")
    assert "docs/templates/docs/page.md.jinja" in text
    assert text.endswith("-->\n\n# 64.00\n")
    with pytest.raises(UsageError, match="no templates"):
        documents(root / "docs")


def test_a_number_has_its_decimals_and_no_sign_before_zero() -> None:
    assert [digits(v, 1) for v in (0.04, -0.04, -0.05001, 1234.56)] == ["0.0", "0.0", "-0.1", "1,234.6"]
    assert [digits(-0.4, 0), words(3), ordinal(5)] == ["0", "three", "fifth"]
    assert [relative(0.756), relative(-0.18)] == ["0.76 higher", "0.18 lower"]


@pytest.mark.parametrize("runs", [3, 10])
def test_the_chance_of_a_star_is_that_of_a_simulation(runs: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(200_000, runs + 1))
    published, one = drawn[:, 1:], drawn[:, 0]
    stars = abs(one - published.mean(1)) > 2 * published.std(1, ddof=1)
    assert chance_of_star(runs) == pytest.approx(stars.mean(), abs=0.005)


def test_paragraphs_and_items_are_filled_and_the_rest_stays() -> None:
    text = """\
# A heading that is longer than the width stays on its line

one two three
four

- first item of the list
  goes on
- second

| a | table row that is longer than the width |

```console
a command   that is longer than the width

# and a comment
```
![an image that is longer than the width](x.png)
"""
    assert (
        wrapped(text, 16)
        == """\
# A heading that is longer than the width stays on its line

one two three
four

- first item of
  the list goes
  on
- second

| a | table row that is longer than the width |

```console
a command   that is longer than the width

# and a comment
```

![an image that is longer than the width](x.png)
"""
    )


@pytest.mark.parametrize("mark", ["-", "+", "*", "1.", "#", ">"])
def test_no_filled_line_starts_a_list_or_a_heading(mark: str) -> None:
    filled = wrapped(f"aaaa bbbb {mark} cccc dddd eeee", 12)
    assert all(not line.startswith(f"{mark} ") for line in filled.splitlines())
    assert filled.split() == ["aaaa", "bbbb", mark, "cccc", "dddd", "eeee"]
