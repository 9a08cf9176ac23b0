"""Apply each mutant of mutants.toml to a copy of the tree, and see whether the fast suite stops it.

    python tests/mutants/run.py --jobs 16                     # all of them
    python tests/mutants/run.py --only coin-inverted --quick  # one, against its own test files

Before anything else the unchanged suite runs once; tests that fail then are listed and left out. A mutant meets its own
test files first, and then, if it passes them, the whole fast suite. A hang counts as stopped. Each result is a line in
--out as soon as it is known, and a later call continues from there as long as src and tests stay the same.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from queue import Queue
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHANGED = ("src", "tests")  # copied; the rest of the tree is linked
LEFT_OUT = ("tests/gpu", "tests/mutants")  # the latter checks that the set applies: of course it does not any more
HANG = 3  # times the time without a mutant, and a minute
QUICK = 900.0  # seconds, where the time without a mutant is not known
Mutant = dict[str, Any]


def read_set() -> list[Mutant]:
    """Return the mutants; a ValueError names those that no longer apply."""
    mutants: list[Mutant] = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    wrong = [f"{m['id']}: {found} times in {m['file']}" for m in mutants if (found := _occurrences(m)) != 1]
    wrong += [f"{m['id']}: there is no {path}" for m in mutants for path in m["tests"] if not (ROOT / path).is_file()]
    ids = [m["id"] for m in mutants]
    wrong += [f"{name}: used twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    if wrong:
        raise ValueError("mutants that do not apply: " + "; ".join(wrong))
    return mutants


def _occurrences(m: Mutant) -> int:
    path = ROOT / m["file"]
    return path.read_text().count(m["old"]) if path.is_file() else 0


def fingerprint() -> str:
    """Return a hash of all files that results depend on."""
    h = sha256()
    for path in sorted(p for folder in CHANGED for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".toml")):
        h.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return h.hexdigest()[:16]


class Tree:
    """A copy of the tree in a folder of its own, with one mutant at a time."""

    def __init__(self, place: Path) -> None:
        self.root = place / ROOT.name
        self.root.mkdir(parents=True)
        for path in ROOT.iterdir():
            if path.name in CHANGED:
                shutil.copytree(path, self.root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif not path.name.startswith("."):
                (self.root / path.name).symlink_to(path)
        if (ROOT.parent / "shared").is_dir():  # data next to the repository
            (place / "shared").symlink_to(ROOT.parent / "shared")

    def apply(self, m: Mutant) -> None:
        path = self.root / m["file"]
        path.write_text((ROOT / m["file"]).read_text().replace(m["old"], m["new"]))

    def restore(self, m: Mutant) -> None:
        shutil.copy2(ROOT / m["file"], self.root / m["file"])

    def test(self, paths: Sequence[str], failing: Sequence[str], limit: float, stop: bool = True) -> list[str]:
        """Return the tests that fail, the first one only if `stop`; "hang" if they take longer than `limit` seconds."""
        notes = self.root.parent / "failed.txt"
        notes.unlink(missing_ok=True)
        (self.root.parent / "left_out.txt").write_text("\n".join(failing))
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(self.root / "src"), str(HERE)]), "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "MUTANT_NOTES": str(notes),
            "MUTANT_LEFT_OUT": str(self.root.parent / "left_out.txt"),
        }  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "notes", "--tb=no"]
        command += [f"--basetemp={self.root.parent / 'tmp'}"]
        command += ["-x"] if stop else ["--continue-on-collection-errors"]
        with (self.root.parent / "output.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, *(f"--ignore={path}" for path in LEFT_OUT), *paths], cwd=self.root, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                return ["hang"]
            finally:
                _end(process)
        failed = notes.read_text().splitlines() if notes.exists() else []
        return failed or ([] if code in (0, 5) else [f"exit code {code}"])  # 5: nothing was collected


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Baseline:
    """The unchanged suite: which tests fail without a mutant, and the time of each package of tests.

    Each package has a process of its own, here as for mutants, however many run at a time.
    """

    def __init__(self, place: Path, record: Path, tree: str, jobs: int) -> None:
        """Run it, or read it from `record` if it is of this tree."""
        known = json.loads(record.read_text()) if record.exists() else {}
        if known.get("tree") != tree:
            print("running the unchanged suite …", flush=True)
            parts = sorted(p for p in (ROOT / "tests").iterdir() if any(p.rglob("test_*.py")) or p.match("test_*.py"))
            names = [name for p in parts if (name := str(p.relative_to(ROOT))) not in LEFT_OUT]
            with ThreadPoolExecutor(jobs) as workers:
                found = list(workers.map(lambda name: self._run(place / Path(name).stem, name), names))
            failing = [name for names, _ in found for name in names]
            known = {
                "tree": tree,
                "failing": failing,
                "seconds": {n: s for n, (_, s) in zip(names, found, strict=True)},
            }
            record.write_text(json.dumps(known, indent=1) + "\n")
        self.failing: list[str] = known["failing"]
        self.seconds: dict[str, float] = known["seconds"]
        total, left_out = sum(self.seconds.values()), len(self.failing)
        print(f"the unchanged suite takes {total:.0f} s; {left_out} failing tests are left out")
        for name in self.failing:
            print(f"  left out: {name}", flush=True)

    @staticmethod
    def _run(place: Path, name: str) -> tuple[list[str], float]:
        began = time.monotonic()
        failing = Tree(place).test([name], [], 3600, stop=False)
        if failing == ["hang"] or any(text.startswith("exit code") for text in failing):
            raise SystemExit(f"{name} does not run ({failing[0]}):\n{(place / 'output.txt').read_text()[-2000:]}")
        return failing, round(time.monotonic() - began, 1)

    def stages(self, m: Mutant) -> list[tuple[list[str], float]]:
        """Return what to run for a mutant, each with its limit in seconds: its own files, then every package."""
        own = {part for part in self.seconds for path in m["tests"] if Path(path).is_relative_to(part)}
        first = (m["tests"], HANG * sum(self.seconds[part] for part in own) + 60)
        return [first, *(([part], HANG * seconds + 60) for part, seconds in self.seconds.items())]


def try_mutant(m: Mutant, trees: "Queue[Tree]", baseline: Baseline | None, end: float) -> dict[str, Any] | None:
    """Return which test stops a mutant, none if it survives; None if the time is up before that is known."""
    tree, began, stopped = trees.get(), time.monotonic(), [""]
    try:
        tree.apply(m)
        for paths, limit in baseline.stages(m) if baseline else [(m["tests"], QUICK)]:
            left = end - time.monotonic()
            stopped = tree.test(paths, baseline.failing if baseline else [], min(limit, left)) if left > 0 else ["hang"]
            if stopped == ["hang"] and left < limit:
                return None
            if stopped:
                break
    finally:
        tree.restore(m)
        trees.put(tree)
    return {"id": m["id"], "stopped": stopped[0] if stopped else None, "seconds": round(time.monotonic() - began, 1)}


def results(out: Path, tree: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the results of an earlier call on the same tree; a quick one says nothing of survivors."""
    for line in out.read_text().splitlines() if out.exists() else ():
        one = json.loads(line)
        if one["tree"] == tree and (one["stopped"] or quick or not one["quick"]):
            yield one


def main() -> int:
    """Try the mutants; return 0 if all were stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default: 1)")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants only, again if they are known")
    parser.add_argument("--quick", action="store_true", help="their own test files only, without a baseline")
    parser.add_argument("--minutes", type=float, default=inf, help="stop after this time; a later call continues")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.jsonl", help="file of the results")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    options.out.parent.mkdir(parents=True, exist_ok=True)
    mutants, tree = read_set(), fingerprint()
    if unknown := set(options.only or ()) - {m["id"] for m in mutants}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [m for m in mutants if not options.only or m["id"] in options.only]
    earlier = () if options.only else results(options.out, tree, options.quick)
    known = {one["id"]: one for one in earlier}
    todo = [m for m in chosen if m["id"] not in known]
    print(f"{len(chosen)} mutants, {len(chosen) - len(todo)} of them known", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, options.out.open("a") as out:
        baseline = None
        if todo and not options.quick:
            record = options.out.with_suffix(".baseline.json")
            baseline = Baseline(Path(place, "baseline"), record, tree, options.jobs)
        trees: Queue[Tree] = Queue()
        for n in range(min(options.jobs, len(todo))):
            trees.put(Tree(Path(place, str(n))))
        with ThreadPoolExecutor(options.jobs) as workers:
            waiting = [workers.submit(try_mutant, m, trees, baseline, end) for m in todo]
            for done in as_completed(waiting):
                one = done.result()
                if one is None:
                    continue
                known[one["id"]] = one
                out.write(json.dumps({**one, "tree": tree, "quick": options.quick}) + "\n")
                out.flush()
                print(f"{one['seconds']:7.1f} s  {one['id']}: {one['stopped'] or 'SURVIVED'}", flush=True)
    survivors = [name for name in known if not known[name]["stopped"]]
    print(f"{len(known) - len(survivors)} of {len(chosen)} stopped, {len(chosen) - len(known)} not tried yet")
    for name in survivors:
        print(f"  survived: {name}")
    return 1 if survivors or len(known) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
