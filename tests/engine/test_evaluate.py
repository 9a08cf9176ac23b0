import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from scommer.data import from_arrays
from scommer.engine import evaluate as ev
from scommer.engine.augment import Augment
from scommer.engine.evaluate import Scores, evaluate, summary
from scommer.errors import ScommerError
from scommer.memory import LongTermMemory, WorkingMemory
from scommer.methods import View
from scommer.nn.networks import NetworkOutput, build
from scommer.streams import class_il, gcil

# --- measures of a matrix

R = np.array([[90.0, 10, 0], [60, 80, 20], [30, 70, 50]])
UNTRAINED = np.array([12.0, 9, 6])


def test_measures_of_a_matrix_worked_out_by_hand():
    assert ev.average_accuracy(R) == 50  # (30 + 70 + 50) / 3
    assert ev.last_accuracy(R) == 50
    assert ev.forgetting(R) == 35  # ((90 - 30) + (80 - 70)) / 2
    assert ev.backward_transfer(R) == -35  # ((30 - 90) + (70 - 80)) / 2
    assert ev.forward_transfer(R, UNTRAINED) == 7.5  # ((10 - 9) + (20 - 6)) / 2


def test_forgetting_counts_from_the_best_moment_not_from_the_first():
    r = np.array([[50.0, 0, 0], [70, 40, 0], [60, 30, 90]])
    assert ev.forgetting(r) == 10  # ((70 - 60) + (40 - 30)) / 2
    assert ev.backward_transfer(r) == 0  # ((60 - 50) + (30 - 40)) / 2


def test_what_was_never_lost_is_negative_forgetting():
    r = np.array([[50.0, 0], [60, 80]])
    assert ev.forgetting(r) == -10
    assert ev.backward_transfer(r) == 10


@pytest.mark.parametrize("seed", range(5))
def test_measures_agree_with_loops_over_the_definitions(seed):
    rng = np.random.default_rng(seed)
    tasks = int(rng.integers(2, 8))
    r, b = rng.uniform(0, 100, (tasks, tasks)), rng.uniform(0, 100, tasks)
    last = tasks - 1
    lost = moved = ahead = 0.0
    for i in range(last):
        lost += max(r[t][i] for t in range(last)) - r[last][i]
        moved += r[last][i] - r[i][i]
        ahead += r[i][i + 1] - b[i + 1]
    assert ev.average_accuracy(r) == pytest.approx(sum(r[last]) / tasks)
    assert ev.last_accuracy(r) == r[last][last]
    assert ev.forgetting(r) == pytest.approx(lost / last)
    assert ev.backward_transfer(r) == pytest.approx(moved / last)
    assert ev.forward_transfer(r, b) == pytest.approx(ahead / last)


def test_a_sequence_of_tasks_has_every_measure():
    assert summary(R, UNTRAINED, "class-il") == {
        "accuracy": 50, "forgetting": 35, "backward_transfer": -35, "forward_transfer": 7.5,
    }  # fmt: skip


def test_gcil_has_the_nested_mean_and_the_last():
    measures = summary(np.array([[40.0, 30], [20, 50]]), np.array([1.0, 2]), "gcil")
    assert measures["accuracy"] == 35  # unweighted mean over the nested sets
    assert measures["last"] == 50
    assert set(measures) == {"accuracy", "last", "forgetting", "backward_transfer"}  # no test set is of what is to come


@pytest.mark.parametrize(("kind", "extra"), [("class-il", {}), ("gcil", {"last": 30.0})])
def test_training_at_once_has_only_the_end(kind, extra):
    assert summary(np.array([[90.0, 60, 30]]), UNTRAINED, kind) == {"accuracy": 60.0} | extra


def test_a_single_task_has_nothing_to_forget():
    assert summary(np.array([[70.0]]), np.array([10.0]), "class-il") == {"accuracy": 70}


def test_measures_are_plain_numbers_for_json():
    assert {type(v) for v in summary(R, UNTRAINED, "gcil").values()} == {float}


# --- scores of a network

CLASSES, IMAGES = 6, 1203  # three chunks of up to 500
RNG = np.random.default_rng(3)
LABELS = RNG.permutation(np.repeat(np.arange(CLASSES), [300, 203, 250, 150, 200, 100]))
LOGITS = RNG.normal(size=(IMAGES, CLASSES)).astype(np.float32) * 3
FIRED = [RNG.random((IMAGES, n)) < 0.4 for n in (3, 5)]
SHIFT = np.float32(1.5)


class Told(nn.Module):
    """Answers as told: the pixel is the image's number. Its running statistic is added to logit 0."""

    units = (3, 5)

    def __init__(self, logits=LOGITS):
        super().__init__()
        self.logits = torch.from_numpy(logits)
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("running", torch.zeros(1))
        self.modes = []

    def forward(self, x, keep=None, parts=None):
        self.modes.append(self.training)
        image = x[:, 0, 0, 0].round().long()
        logits = self.logits[image]
        logits[:, 0] += self.running
        return NetworkOutput(logits, [torch.from_numpy(fired)[image] for fired in FIRED])


def pixels(n):
    return np.arange(n, dtype=np.float32)[:, None, None]


def told_stream(order="given"):
    test = pixels(IMAGES), LABELS
    return class_il((pixels(CLASSES), np.arange(CLASSES), *test), 3, order=order)


def score(stream, memory=None, statistics=None):
    memory = memory or WorkingMemory(Told())
    view = View("told", memory, memory.weights.statistics if statistics is None else statistics)
    return evaluate(view, stream, stream.data.test_images, stream.data.test_labels, Augment(0, False, [0.0], [1.0]))


def softmax(z):
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


@pytest.mark.parametrize("order", ["given", [5, 2, 0, 4, 1, 3]])
def test_class_il_and_task_il_accuracy_agree_with_a_loop_over_images(order):
    stream = told_stream(order)
    scores = score(stream)
    for t, task in enumerate(stream.tasks):
        among_all = among_own = images = 0
        for z, label in zip(LOGITS, LABELS, strict=True):
            if label in task.classes:
                images += 1
                among_all += max(range(CLASSES), key=lambda c, z=z: z[c]) == label
                among_own += max(task.classes, key=lambda c, z=z: z[c]) == label
        assert scores.class_il[t] == pytest.approx(100 * among_all / images)
        assert scores.task_il[t] == pytest.approx(100 * among_own / images)
    assert (scores.task_il > scores.class_il).all()  # the two differ here


def test_nested_test_sets_are_scored_each_on_its_own():
    data = from_arrays(pixels(60), np.arange(60) % CLASSES, pixels(IMAGES), LABELS)
    stream = gcil(data, tasks=4, samples=10, max_classes=2)
    for accuracy, task in zip(score(stream).class_il, stream.tasks, strict=True):
        hits = [LOGITS[i].argmax() == LABELS[i] for i in task.test.tolist()]
        assert accuracy == pytest.approx(100 * sum(hits) / len(hits))


def test_class_accuracy_agrees_with_a_loop_over_images():
    hits, images = [0] * CLASSES, [0] * CLASSES
    for z, label in zip(LOGITS, LABELS, strict=True):
        images[label] += 1
        hits[label] += z.argmax() == label
    assert score(told_stream()).class_accuracy == pytest.approx(
        [100 * h / n for h, n in zip(hits, images, strict=True)]
    )


def test_the_accuracy_of_a_class_without_test_images_is_not_known():
    few = LABELS != 1
    data = from_arrays(pixels(60), np.arange(60) % CLASSES, pixels(IMAGES)[few], LABELS[few])
    found = score(class_il(data, tasks=1)).class_accuracy
    assert np.isnan(found).tolist() == [c == 1 for c in range(CLASSES)]


def test_class_probability_is_the_mean_softmax_over_the_test_images_of_all_tasks():
    mean = np.mean([softmax(z.tolist()) for z in LOGITS], axis=0)
    assert score(told_stream()).class_probability == pytest.approx(mean, abs=1e-6)


def test_images_that_no_task_is_scored_on_count_for_nothing_but_their_class():
    data = from_arrays(pixels(60), np.arange(60) % CLASSES, pixels(IMAGES), LABELS)
    stream = gcil(data, tasks=1, samples=10, max_classes=2)
    scores, seen = score(stream), stream.tasks[0].test.tolist()
    assert 0 < len(seen) < IMAGES
    assert scores.class_probability == pytest.approx(np.mean([softmax(LOGITS[i].tolist()) for i in seen], 0), abs=1e-6)
    assert scores.reliability[:, 0].sum() == len(seen)
    assert (scores.class_accuracy > 0).all()


def test_reliability_sorts_images_by_confidence():
    table = np.zeros((15, 3))
    for z, label in zip(LOGITS, LABELS, strict=True):
        confidence = max(softmax(z.tolist()))
        row = next(b for b in range(15) if confidence < (b + 1) / 15 or b == 14)
        table[row] += [1, confidence, z.argmax() == label]
    found = score(told_stream()).reliability
    assert found[:, 0].tolist() == table[:, 0].tolist()
    assert found[:, 1] == pytest.approx(table[:, 1], rel=1e-5)
    assert found[:, 2].tolist() == table[:, 2].tolist()


def test_certainty_is_in_the_last_bin():
    certain = np.zeros_like(LOGITS)
    certain[:, 2] = 1e4
    table = score(told_stream(), WorkingMemory(Told(certain))).reliability
    assert table[14].tolist() == [IMAGES, IMAGES, (LABELS == 2).sum()]
    assert not table[:14].any()


def test_a_broken_network_gives_scores_or_a_message():
    broken = np.full_like(LOGITS, np.nan)  # weights that overflowed in the last step of a task
    try:
        scores = score(told_stream(), WorkingMemory(Told(broken)))
    except ScommerError:
        return
    assert np.isfinite(scores.class_il).all()


def test_activity_counts_the_test_images_of_each_class_that_activate_each_unit():
    activity = score(told_stream()).activity
    assert [a.shape for a in activity] == [(CLASSES, 3), (CLASSES, 5)]
    for counts, fired in zip(activity, FIRED, strict=True):
        by_hand = np.zeros(counts.shape, dtype=int)
        for label, row in zip(LABELS, fired, strict=True):
            by_hand[label] += row
        assert counts.tolist() == by_hand.tolist()


def test_other_statistics_are_only_borrowed_and_the_network_is_left_in_training():
    memory = WorkingMemory(Told())
    memory.network.running.fill_(0.25)
    scores = score(told_stream(), memory, statistics=torch.tensor([SHIFT]))
    shifted = LOGITS + SHIFT * (np.arange(CLASSES) == 0)
    hits = shifted.argmax(1) == LABELS
    assert scores.class_il[0] == pytest.approx(100 * hits[LABELS < 2].mean())
    assert hits[LABELS < 2].mean() != (LOGITS.argmax(1) == LABELS)[LABELS < 2].mean()
    assert len(memory.network.modes) > 1  # evaluated in chunks
    assert not any(memory.network.modes)  # never in training mode
    assert memory.network.training
    assert memory.network.running.item() == 0.25


def test_a_real_network_is_unchanged_by_evaluation():
    """Of a long-term memory: batch-norm statistics, weights, and the answer in training mode stay."""
    draw = torch.Generator().manual_seed(0)
    memory = LongTermMemory(WorkingMemory(build("small", (1, 8, 8), CLASSES, draw)), draw)
    images = torch.rand(60, 1, 8, 8, generator=draw)
    memory.retrieve(images[:32])  # statistics of its own
    stream = class_il((images.numpy(), np.arange(60) % CLASSES), 3)
    theta, own = memory.weights.theta.clone(), memory.weights.statistics.clone()
    evaluate(
        View("slow", memory, torch.zeros_like(own)), stream,
        stream.data.test_images, stream.data.test_labels, Augment(0, False, [0.5], [0.5]),
    )  # fmt: skip
    assert torch.equal(memory.weights.theta, theta)
    assert torch.equal(memory.weights.statistics, own)
    assert memory.network.training
    assert all(not p.requires_grad for p in memory.network.parameters())


def test_images_are_normalised_as_in_training_and_not_augmented():
    seen = []

    class Watching(Told):
        def forward(self, x, keep=None, parts=None):
            seen.append(x)
            return NetworkOutput(
                torch.zeros(len(x), CLASSES), [torch.zeros(len(x), n, dtype=torch.bool) for n in (3, 5)]
            )

    images = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
    stream = class_il((images, np.arange(12) % CLASSES, images, np.arange(12) % CLASSES), 3)
    memory = WorkingMemory(Watching())
    mean, std = [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]
    augment = Augment(4, True, mean, std)
    view = View("watching", memory, memory.weights.statistics)
    evaluate(view, stream, stream.data.test_images, stream.data.test_labels, augment)
    for channel in range(3):
        expected = (images[:, channel] / 255 - mean[channel]) / std[channel]
        assert seen[0][:, channel].numpy() == pytest.approx(expected, abs=1e-5)


def test_scores_round_trip_through_named_arrays():
    scores = score(told_stream())
    arrays = scores.arrays()
    assert {"class_il", "task_il", "reliability", "activity.1", "activity.2"} <= set(arrays)
    again = Scores.from_arrays(arrays)
    assert [a.tolist() for a in again.activity] == [a.tolist() for a in scores.activity]
    for name in ("class_il", "task_il", "class_accuracy", "class_probability", "reliability"):
        assert np.array_equal(getattr(again, name), getattr(scores, name))


def test_activity_keeps_the_order_of_more_than_nine_stages():
    scores = score(told_stream())
    many = replace(scores, activity=[np.array([[l]]) for l in range(12)])
    shuffled = dict(sorted(many.arrays().items()))  # activity.1, activity.10, activity.11, activity.12, activity.2, …
    assert [a.item() for a in Scores.from_arrays(shuffled).activity] == list(range(12))
