"""How a run can be made again: its command, as this version reads it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record
from scommer.runs.settings import written
from scommer.streams import STREAMS


@dataclass(frozen=True)
class Again:
    """A command for runs of one set of settings; or why there is none."""

    command: str
    note: str = ""


def commands(records: Sequence[Record]) -> list[Again]:
    """For runs that differ in their seed: a command for each device and precision."""
    alike: dict[tuple[Any, ...], list[Record]] = {}
    for r in records:
        alike.setdefault((r.device.type, r.device.precision), []).append(r)
    return [_again(runs) for runs in alike.values()]


def _again(runs: Sequence[Record]) -> Again:
    record = runs[0]
    e, device = record.experiment, record.device
    if e.stream not in STREAMS or (e.given is not None and presets.has(e.stream)):  # or has the name of one of those
        own = f"'{e.stream}' is a stream of its own, not one of `scommer list`: make it again in Python, then"
        return Again("", f"{own} run(Experiment(stream, …)), or give `scommer run` its folder; with the settings above")
    if e.method not in METHODS:
        return Again("", f"'{e.method}' is a method of its own: add it to METHODS, then run it as above")
    words = ["scommer", "run", e.stream, "--method", e.method]
    words += ["--buffer", str(e.buffer)] if e.buffer else []
    seeds = [str(r.experiment.seed) for r in runs]
    words += ["--seeds", *seeds] if len(seeds) > 1 else ["--seed", *seeds]
    words += ["--variant", e.variant] if e.variant != "official" else []
    words += ["--validation", str(e.validation)] if e.validation else []
    usual = presets.settings(e.stream, e.method, e.buffer, e.variant)
    for name, value in record.settings.items():
        if name in usual and usual[name] != value:
            words += ["--set", f"{name}={written(value)}"]
    words += ["--device", device.type] if device.type else []
    words += ["--precision", device.precision] if device.precision else []
    strange = [name for name in record.settings if name not in usual] + [n for n in usual if n not in record.settings]
    note = f"This version and that of the run differ in their settings ({', '.join(strange)})." if strange else ""
    return Again(shlex.join(words), note)
