"""The tasks that a classifier has learned."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from scommer.lifelong.labels import Label

NEWEST = 1000  # tasks that are described: a stream of single rows may have millions


@dataclass(frozen=True)
class History:
    """How many tasks were learned, the classes that occurred in them, and a description of the newest."""

    tasks: int = 0
    classes: tuple[Label, ...] = ()  # each once, without forgotten ones
    newest: tuple[Mapping[str, Any], ...] = ()

    def with_task(self, task: Mapping[str, Any]) -> "History":
        """Return the history with one more task."""
        classes = dict.fromkeys((*self.classes, *task["classes"]))
        return History(self.tasks + 1, tuple(classes), (*self.newest, task)[-NEWEST:])

    def without(self, classes: Collection[Label]) -> "History":
        """Return the history as if these classes had never occurred."""
        newest = ({**task, "classes": [c for c in task["classes"] if c not in classes]} for task in self.newest)
        return History(self.tasks, tuple(c for c in self.classes if c not in classes), tuple(newest))
