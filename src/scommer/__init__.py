"""Neural networks that learn task after task without forgetting: SCoMMER, its baselines and its streams.

>>> from scommer import Experiment, run
>>> record = run(Experiment("s-digits", "sgd", settings={"epochs": 1}))
>>> record.inference, record.matrix().shape
('working', (5, 5))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scommer.analysis.selection import load_records
    from scommer.data import Dataset, from_arrays, from_folder, read_images
    from scommer.lifelong.classifier import LifelongClassifier
    from scommer.runs.experiment import Experiment
    from scommer.runs.record import Record
    from scommer.runs.runner import run, run_together
    from scommer.runs.trained import load_trained
    from scommer.streams.class_il import class_il as class_il
    from scommer.streams.gcil import gcil as gcil
    from scommer.streams.stream import Stream, Task
    from scommer.sweeps.sweep import sweep

__version__ = "0.2.0"
__all__ = [
    "Dataset", "Experiment", "LifelongClassifier", "Record", "Stream", "Task", "class_il", "from_arrays",
    "from_folder", "gcil", "load_records", "load_trained", "read_images", "run", "run_together", "sweep",
]  # fmt: skip

_HOMES = {
    "Dataset": "data", "from_arrays": "data", "from_folder": "data", "read_images": "data",
    "Stream": "streams", "Task": "streams", "class_il": "streams", "gcil": "streams",
    "Experiment": "runs.experiment", "Record": "runs.record", "load_trained": "runs.trained",
    "run": "runs.runner", "run_together": "runs.runner", "sweep": "sweeps.sweep",
    "load_records": "analysis.selection", "LifelongClassifier": "lifelong",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that `scommer --help` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'scommer' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"scommer.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
