"""How experiments are run: the options of `run`, `run_together` and the command line."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from scommer.device import choose_device, choose_precision
from scommer.errors import UsageError, check_name
from scommer.files import expand_user
from scommer.runs.logs import LOGS
from scommer.runs.progress import Watch, watch_for


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where and how experiments are run. Only precision changes the result."""

    out: Path | str | None = None  # each run gets a folder below it; None: nothing is written
    data: Path | str | None = None  # folder of the data sets; None: $SCOMMER_DATA, then the user's cache
    device: str | None = None  # "cpu", "cuda", "cuda:1"; None: a GPU if there is one
    precision: str | None = None  # of convolutions: "bf16", "tf32", "fp32"; None: bf16 on a GPU, fp32 on a CPU
    capture: bool = True  # on a GPU, replay each step as one CUDA graph
    watch: Watch | bool | None = None  # follows the longest run; True: shows its progress; None: only warnings
    log: str | None = None  # a name in LOGS, for curves while it runs
    checkpoint_seconds: float = 300.0  # at most this long between checkpoints
    minutes: float | None = None  # after which runs are saved and stopped, with the error TimeUp
    weights: bool = False  # keep the final weights
    fresh: bool = False  # start over, even if a run is finished or half done

    def __post_init__(self) -> None:
        if isinstance(self.watch, bool):
            object.__setattr__(self, "watch", watch_for(Console()) if self.watch else None)
        choose_precision(self.precision, choose_device(self.device))
        if self.log is not None:
            check_name("log", self.log, LOGS)
        if not self.checkpoint_seconds >= 0:
            raise UsageError(f"checkpoint_seconds = {self.checkpoint_seconds:g} is invalid: expected 0 or more")
        if self.minutes is not None and not self.minutes > 0:
            raise UsageError(f"minutes = {self.minutes:g} is invalid: expected more than 0")
        if self.weights and not self.out:
            raise UsageError("weights are kept in the run's folder: give one with out")

    def folder(self, name: str) -> Path | None:
        """Return the folder of the run `name`."""
        return expand_user(self.out) / name if self.out else None
