"""The commands that repeat runs with this version."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from scommer.analysis.selection import settings_of
from scommer.methods import METHODS
from scommer.runs import presets
from scommer.runs.record import Record
from scommer.runs.settings import written
from scommer.streams import STREAMS


@dataclass(frozen=True)
class Command:
    """The command that repeats runs with the same settings; or a note on why there is none."""

    line: str
    note: str = ""


def commands(records: Sequence[Record]) -> list[Command]:
    """Return a command for each device and precision, for runs that differ only in their seed."""
    alike: dict[tuple[str, str | None], list[Record]] = {}
    for r in records:
        alike.setdefault((r.device.type, r.device.precision), []).append(r)
    return [_command(runs) for runs in alike.values()]


def _command(runs: Sequence[Record]) -> Command:
    record = runs[0]
    e, device = record.experiment, record.device
    if e.stream not in STREAMS or (e.given is not None and presets.has(e.stream)):  # or only has the same name as one
        note = (
            f"'{e.stream}' is not a stream of `scommer list`: create it in Python and call run(Experiment(stream, …)), "
            "or give `scommer run` its folder, with the settings above."
        )
        return Command("", note)
    if e.method not in METHODS:
        return Command("", f"'{e.method}' is not a method of `scommer list`: add it to METHODS, then run it as above.")
    words = ["scommer", "run", e.stream, "--method", e.method]
    words += ["--buffer", str(e.buffer)] if e.buffer else []
    seeds = [str(r.experiment.seed) for r in runs]
    words += ["--seeds", *seeds] if len(seeds) > 1 else ["--seed", *seeds]
    words += ["--variant", e.variant] if e.variant != presets.usual_variant(e.stream) else []
    words += ["--validation", str(e.validation)] if e.validation else []
    preset = presets.settings(e.stream, e.method, e.buffer, e.variant)
    settings = settings_of(record)
    for name, value in settings.items():
        if name in preset and preset[name] != value:
            words += ["--set", f"{name}={written(value)}"]
    words += ["--device", device.type]
    words += ["--precision", device.precision] if device.precision else []
    unknown = [name for name in settings if name not in preset]
    note = f"This version does not have these settings of the run: {', '.join(unknown)}." if unknown else ""
    return Command(shlex.join(words), note)
