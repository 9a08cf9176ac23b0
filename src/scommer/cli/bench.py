"""The command that times a step: bench."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scommer.cli.common import DeviceOption, PrecisionOption, console, numbers_option
from scommer.errors import UsageError, check_name

if TYPE_CHECKING:
    from scommer.bench.timing import Setup

COSTS = 25  # kernels that --profile lists


def bench(
    method: Annotated[str, typer.Option("--method", "-m", help="Method to time.")] = "scommer",
    variant: Annotated[
        str, typer.Option("--variant", help="SCoMMER's variant; any other than official is timed alternately with it.")
    ] = "official",
    network: Annotated[
        str | None,
        typer.Option("--network", help="resnet18, small, mlp or linear (default: resnet18 on a GPU, else small)."),
    ] = None,
    classes: Annotated[int, typer.Option("--classes", min=2, help="10 as in S-CIFAR10, 100 as in S-CIFAR100.")] = 10,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of steps to time per row.")] = 50,
    cohorts: Annotated[
        list[int] | None,
        numbers_option("--cohorts", "Learners side by side; one is always timed.  [default: 1 2 4 8]"),
    ] = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    switches: Annotated[
        bool, typer.Option("--levers", help="On a GPU, also time a step without each of its optimisations.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Instead, list what each kernel or operation of a step takes.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="With --profile, also write a trace, for Perfetto or chrome://tracing."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time a training step on this machine: alone, side by side, and compared with its convolutions alone."""
    from dataclasses import asdict

    from scommer.analysis.table import Table, as_rich, number, number_columns, row, text_columns
    from scommer.bench.timing import COHORTS, Setup, bench as measure, random_stream
    from scommer.device import choose_device, choose_precision
    from scommer.methods import METHODS
    from scommer.runs import presets

    check_name("method", method, METHODS)
    check_name("variant", variant, presets.presets()["variant"])
    where = choose_device(device)
    chosen_precision = choose_precision(precision, where)
    chosen = network or ("resnet18" if where.type == "cuda" else "small")
    sizes = tuple(cohorts) if cohorts else COHORTS
    if 0 in sizes:
        raise UsageError("--cohorts 0 is invalid: expected 1 or more learners side by side")
    if trace and not profile:
        raise UsageError("--trace writes what --profile measures: give both")
    if profile:
        stream = random_stream(classes, 32, tested=1)
        _profile(Setup(stream, method, chosen, where, chosen_precision, variant), steps, trace, as_json)
        return
    measured = measure(
        method, network=chosen, classes=classes, device=where, precision=chosen_precision,
        steps=steps, cohorts=sizes, switches=switches, variant=variant,
    )  # fmt: skip
    if as_json:
        print(json.dumps(asdict(measured), indent=1))
        return
    title = f"{measured.method}, {chosen}, batch {measured.batch}, {measured.device['name']}, {chosen_precision}"
    rows = []
    for t in measured.timings:
        bases = (measured.bare_ms, measured.floor_ms)  # an MLP has no convolutions
        ratios = [number(t.ms / base if base > 0.01 else None) for base in bases]
        rows.append(
            row(t.what, number(t.ms), *ratios, number(t.images_per_second, ",.0f"), number(t.mib or None, ",.0f"))
        )
    for what, ms in (("networks alone", measured.bare_ms), ("convolutions alone (floor)", measured.floor_ms)):
        rows.append(row(what, number(ms), *[""] * 4))
    columns = (*text_columns("a step"), *number_columns("ms", "× networks", "× floor", "img/s", "MiB"))
    console.print(as_rich(Table(title, columns, tuple(rows))))
    console.print(
        f"first {'captured ' if where.type == 'cuda' else ''}step after {measured.start_s:.1f} s; "
        f"{measured.tested:,} test images scored by {measured.views} memories in {measured.score_s:.2f} s"
    )


def _profile(setup: "Setup", steps: int, trace: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    from scommer.analysis.table import Table, as_rich, number, number_columns, row, text_columns
    from scommer.bench.profile import profile_step

    costs = profile_step(setup, steps, trace)
    if as_json:
        print(json.dumps([asdict(cost) for cost in costs], indent=1))
        return
    total = sum(cost.ms for cost in costs)
    shown, rest = costs[:COSTS], costs[COSTS:]
    rows = [row(cost.name, number(cost.calls, ".1f"), number(cost.ms, ".3f")) for cost in shown]
    if rest:
        calls, ms = sum(cost.calls for cost in rest), sum(cost.ms for cost in rest)
        rows.append(row(f"{len(rest)} others", number(calls, ".1f"), number(ms, ".3f")))
    title = f"{setup.method}, {setup.network}: {total:.2f} ms in all, one after the other"
    console.print(as_rich(Table(title, (*text_columns("a step"), *number_columns("calls", "ms")), tuple(rows))))
