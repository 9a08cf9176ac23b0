"""The one training loop: task > epoch > step."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from scommer import randomness
from scommer.device import Precision
from scommer.engine.augment import Augment
from scommer.engine.calibration import Calibration
from scommer.engine.evaluate import Scores, evaluate
from scommer.engine.rehearsal import compile_ahead
from scommer.errors import RunError, UsageError
from scommer.gpu.capture import Step, captured
from scommer.gpu.side_stream import SideStream, record_event
from scommer.methods import Batch, MemoryFactory, Method, TaskImages, View
from scommer.methods.base import concatenate
from scommer.methods.training import Training
from scommer.streams import Stream

Moment = Literal["step", "epoch", "task"]
READ_EPOCHS = 10  # after which losses are read at the latest, to notice a run that diverges
DIVERGED = 5  # times the loss of random guessing; healthy runs stay below half of that


class Learner:
    """A method learning a stream. `learn` yields after every step, epoch and task.

    At each yield the learner is consistent: training resumes from its state (engine/state.py) bit for bit. So it is
    whenever `check` is called, while memories are evaluated or a method looks at a task's images once more: an error
    that `check` raises abandons that.
    """

    def __init__(
        self,
        stream: Stream,
        method: Method,
        training: Training,
        *,
        buffer: int = 200,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        capture: bool = True,
        earlier: int = 0,
        known: Collection[int] = (),
    ) -> None:
        """`earlier` tasks were learned by another learner, whose state is restored before this one learns.

        The classes in them are `known`.
        """
        self.stream, self.method, self.training, self.seed = stream, method, training, seed
        self.earlier, self.known = earlier, frozenset(known)
        self.device, self.precision = torch.device(device), precision
        half = torch.bfloat16 if precision == "bf16" else None
        data = stream.data
        _check_statistics(training, data.image_shape)
        self.augment = Augment(
            training.pad, training.flip, training.mean, training.std, self.device, half or torch.float32,
            data.image_shape[0],
        )  # fmt: skip
        self.images, self.labels, self.test_images, self.test_labels = stream.on(self.device)
        self.phases = stream.phases(method.joint)
        self._epochs = training.passes_by_task(map(len, self.phases), (task.classes for task in stream.tasks), known)
        self.augment_generator = randomness.generator(seed, "augment", self.device)
        # On a GPU all roles share a generator: each one in a graph costs two launches per step.
        shared = self.augment_generator if self.device.type == "cuda" else None
        image, classes = data.train_images[0], data.num_classes
        factory = MemoryFactory(image, classes, training, buffer, seed, self.device, half, shared)
        self.memories = factory.memories(method)
        self.order_generator = randomness.generator(seed, "order")
        self.own_stream = SideStream(self.device, urgent=True)  # learners side by side do not wait for each other
        self.side = SideStream(self.device)  # for what needs no gradient
        self.run_step: Step = self.step
        self.captures = capture and self.device.type == "cuda"
        if self.captures:
            generators = {self.augment_generator, *self.memories.generators().values()}
            self.run_step = captured(self.step, generators, self._is_alone)
        # position
        self.task = self.epoch = self.batch = 0
        self.ended = False  # the task: all that remains is to evaluate it
        self.offered = 0  # examples offered to episodic memory so far
        self.order = torch.zeros(0, dtype=torch.int64)  # of this epoch's images
        # results
        self.loss = torch.zeros((), dtype=torch.float64, device=self.device)  # summed over this epoch
        self._curve: list[float] = []  # mean loss of each epoch, as far as it was read
        self._unread: list[Tensor] = []  # that of the later ones, on the device
        self.scores: dict[str, list[Scores]] = {}  # of each memory after each task
        self.untrained: Scores | None = None
        self.check: Callable[[], None] = lambda: None

    # --- the loop

    def learn(self) -> Iterator[Moment]:
        """Train from the current position to the end of the stream."""
        moments = self._learn()
        while True:
            with self.own_stream.run():
                reached = next(moments, None)
            if reached != "step":
                self.own_stream.join()
            if reached is None:
                return
            yield reached

    def _learn(self) -> Iterator[Moment]:
        compile_ahead(self)
        if self.untrained is None and len(self.test_images):
            self.untrained = self._evaluate(self.method.views(self.memories, [])[0])
        while self.task < len(self.phases):
            # A small task without a new class should change an average little.
            least = 0 if self.brings_new_class(self.task) else self.training.min_steps
            self.memories.task_steps.fill_(max(self.epochs * self.batches, least))
            while self.epoch < self.epochs:
                if self.batch == 0:
                    self._begin_epoch()
                while self.batch < self.batches:
                    self._next_step()
                    yield "step"
                self._end_epoch()
                yield "epoch"
            if not self.ended:
                self.method.after_task(self.memories, self._task_images())
                self.ended = True
            self.score()
            self.task, self.epoch, self.ended = self.task + 1, 0, False
            yield "task"

    @property
    def batch_size(self) -> int:
        """Images per step of this task (of the last task once all are learned)."""
        return min(self.training.batch, len(self.phases[min(self.task, len(self.phases) - 1)]))

    @property
    def epochs(self) -> int:
        """Epochs of this task (of the last task once all are learned)."""
        return self.epochs_of(min(self.task, len(self.phases) - 1))

    def epochs_of(self, task: int) -> int:
        """Return the epochs of any task."""
        return self._epochs[task]

    def brings_new_class(self, task: int) -> bool:
        """Return whether a task has a class that no task before it had."""
        before = self.known.union(*(t.classes for t in self.stream.tasks[:task]))
        return not before.issuperset(self.stream.tasks[task].classes)

    @property
    def batches(self) -> int:
        """Steps per epoch of this task."""
        return self.steps_per_epoch(self.task)

    def steps_per_epoch(self, task: int) -> int:
        """Return the steps per epoch of any task."""
        return self.training.steps(len(self.phases[task]))

    @property
    def place(self) -> tuple[int, int]:
        """The current task and epoch, counted from 1."""
        return min(self.task + 1, len(self.phases)), min(self.epoch + 1, self.epochs)

    @property
    def tasks_learned(self) -> int:
        """The number of tasks learned so far."""
        return self.task if not self.method.joint else len(self.stream.tasks)

    @property
    def steps(self) -> tuple[int, int]:
        """Steps done, and the total."""
        each = [epochs * self.steps_per_epoch(task) for task, epochs in enumerate(self._epochs)]
        done = sum(each[: self.task])
        if self.task < len(each):
            done += self.epoch * self.batches + self.batch
        return done, sum(each)

    def _begin_epoch(self) -> None:
        phase = self.phases[self.task]
        order = phase[torch.randperm(len(phase), generator=self.order_generator)]
        if self.device.type == "cuda":
            order = order.pin_memory()  # so that the copy does not wait for the steps before it
        self.order = order.to(self.device, non_blocking=True)

    def _next_step(self) -> None:
        index = self.order[self.batch * self.batch_size : (self.batch + 1) * self.batch_size]
        offer = self.training.offers(self.epoch, self.epochs)
        self.run_step(index, self._recallable(), offer)
        self.offered += len(index) if offer else 0
        self.batch += 1

    def _recallable(self) -> int:
        """Return how many examples a step replays, from the host's count of offers: nothing is read from the device."""
        if not self.method.draws or self.memories.episodic is None:
            return 0
        return min(self.training.replay, self.memories.episodic.held(self.offered))

    def _task_images(self) -> TaskImages:
        generator = randomness.generator(self.seed, f"after_task/{self.earlier + self.task}")
        index, normalise = self.phases[self.task], self.augment.normalise
        return TaskImages(self.images, self.labels, index, normalise, generator, self.check)

    def _is_alone(self, replay: int) -> bool:
        """Return whether the next step is the first of a run and has nothing to recall, unlike nearly all others."""
        return self.method.draws > 0 and not replay and not (self.task or self.epoch or self.batch)

    def step(self, index: Tensor, replay: int, offer: bool) -> None:
        """Take one step of Algorithm 1: a function of tensors, with no host read and no branch on data."""
        memories, method = self.memories, self.method
        raw, y = self.images[index], self.labels[index]
        task = self._filled(Batch(self.augment(raw, self.augment_generator), y), replay)
        recalled = tuple(self._recall(replay) for _ in range(method.draws if replay else 0))
        ready = record_event(self.device)
        task, *later = (batch._replace(ready=ready) for batch in (task, *recalled))
        recalled = tuple(later)
        outcome = method.loss(memories, task, recalled)
        with self.side.run():
            method.observe(memories, task, outcome)
            if memories.episodic is not None and offer:
                extra = {name: rows[: len(y)] for name, rows in method.extra_fields(outcome).items()}
                memories.episodic.remember(x=raw, y=y, **extra)
            self.loss.add_(outcome.loss.detach())
        if method.descends:
            memories.working.backward(outcome.loss)
            method.adjust_gradient(memories, recalled, self.training.lr)
            memories.working.update(self.training.lr)
        self.side.join()
        method.after_step(memories, task, outcome)

    def _filled(self, task: Batch, recallable: int) -> Batch:
        """Return the batch, filled up with recalled images if it is small: a few images alone make a poor gradient."""
        missing = min(self.training.batch - len(task.y), recallable) if self.training.fill else 0
        return Batch(*concatenate(task, self._recall(missing))) if missing > 0 else task

    def _recall(self, n: int) -> Batch:
        assert self.memories.episodic is not None
        fields = self.memories.episodic.recall(n)
        return Batch(self.augment(fields.pop("x"), self.augment_generator), fields.pop("y"), fields)

    def mean_loss(self) -> float:
        """Return the mean loss of this epoch so far; raise an error if it is not finite."""
        if not self.batch:
            return self.curve[-1] if self.curve else float("nan")
        with self.own_stream.run():
            return self._finite(self.loss.item() / self.batch, self.epoch)

    def _finite(self, loss: float, epoch: int) -> float:
        if not np.isfinite(loss):
            check = " or check the images for NaN" if self.images.is_floating_point() else ""
            raise RunError(
                f"the loss became {loss} in task {self.task + 1}, epoch {epoch + 1}: "
                f"lower the learning rate (now lr = {self.training.lr}){check}"
            )
        return loss

    @property
    def curve(self) -> list[float]:
        """The mean loss of each epoch. Reading it waits for the GPU, so training itself does that now and then only."""
        self._read_losses()
        return self._curve

    @curve.setter
    def curve(self, losses: list[float]) -> None:
        self._curve, self._unread = losses, []

    def _read_losses(self) -> None:
        if self._unread:
            with self.own_stream.run():
                losses = torch.stack(self._unread).tolist()
            first = self.epoch - len(losses)
            self._curve += [self._finite(loss, first + i) for i, loss in enumerate(losses)]
            self._unread = []

    def divergence(self) -> str | None:
        """Return a warning if the last epoch's loss is far above that of guessing; None if it was not read yet."""
        guessing = np.log(max(2, self.method.outputs(self.stream.data.num_classes)))
        if not self.method.descends or self._unread or self.curve[-1] <= DIVERGED * guessing:
            return None
        return (
            f"training diverges: the last epoch's mean loss is {self.curve[-1]:.1f}, that of guessing {guessing:.1f}; "
            f"lower the learning rate (lr = {self.training.lr}) or a weight in the loss"
        )

    def _end_epoch(self) -> None:
        self._unread.append(self.loss / self.batch)
        self.loss.zero_()
        self.method.after_epoch(self.memories, self.epoch)
        self.epoch, self.batch = self.epoch + 1, 0
        if self.device.type == "cpu" or self.epoch == self.epochs or len(self._unread) == READ_EPOCHS:
            self._read_losses()

    # --- evaluation

    def score(self) -> None:
        """Evaluate all memories as they are, if there are test images."""
        self.own_stream.join()
        if not len(self.test_images):
            return
        scored = {v.name: self._evaluate(v) for v in self.views(Calibration(self, self.check))}
        for view, scores in scored.items():
            rows = self.scores.setdefault(view, [])
            rows[:] = [replace(row, activity=[]) for row in rows]  # only the last one is recorded
            rows.append(scores)

    def views(self, calibration: Iterable[Tensor]) -> list[View]:
        """Return the memories to evaluate; with mirror images, the one for inference also without."""
        views = self.method.views(self.memories, calibration)
        if not self.training.mirrored:
            return views
        single = [v._replace(name=f"{v.name}/single") for v in views if v.name == self.method.inference]
        return [v._replace(mirrored=True) for v in views] + single

    def _evaluate(self, view: View) -> Scores:
        return evaluate(view, self.stream, self.test_images, self.test_labels, self.augment, self.check)

    def release(self) -> None:
        """Free the images and what was captured as soon as nobody refers to this learner: it cannot learn any more."""
        del self.run_step  # refers to the learner itself

    def generators(self) -> dict[str, torch.Generator]:
        """Return the generators that training draws from, by name."""
        return {"augment": self.augment_generator, "order": self.order_generator, **self.memories.generators()}


def _check_statistics(training: Training, image_shape: tuple[int, int, int]) -> None:
    channels, height, width = image_shape
    row = channels == height == 1
    if row and (training.pad or training.flip or training.mirrored):
        raise UsageError("rows of features cannot be shifted or mirrored: set pad=0, flip=false and mirrored=false")
    expected, what = (width, "rows have {} features") if row else (channels, "images have {} channels")
    for name in ("mean", "std"):
        n = len(getattr(training, name))
        if n not in (1, expected):
            raise UsageError(f"{name} has {n} values, but the {what.format(expected)}: give 1 or {expected}")
