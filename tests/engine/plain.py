"""Training written a second time as a plain loop: no flat weights, no parts of a batch, an image or a unit at a time.

Only initial weights and random draws are shared with the package: the draws of each role, in the order of a step.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scommer import Stream
from scommer.nn import networks
from scommer.randomness import generator

State = dict[str, Tensor]
Masks = list[Tensor | None]
Recalled = list[tuple[Tensor, ...]]  # of each draw: images, labels, extra fields
Result = tuple[Tensor, Tensor, list[Tensor]]  # a loss, the logits of the task batch, which units fired


class Network:
    """A residual network of one block a stage; `active` are the shares of active units, None if it is dense."""

    def __init__(self, state: State, active: list[float] | None) -> None:
        self.p = {k: v.double().clone().requires_grad_() for k, v in state.items() if "running" not in k}
        self.running = {k: v.double().clone() for k, v in state.items() if "running" in k}
        self.active = active
        self.stages = 1 + max(int(k.split(".")[1]) for k in self.p if k.startswith("stages"))

    def copy(self) -> "Network":
        return Network({k: v.detach() for k, v in {**self.p, **self.running}.items()}, self.active)

    def norm(self, name: str, x: Tensor, train: bool) -> Tensor:
        mean, var = self.running[f"{name}.running_mean"], self.running[f"{name}.running_var"]
        if train:
            n = x.numel() / x.shape[1]
            m, v = x.mean((0, 2, 3)), ((x - x.mean((0, 2, 3), keepdim=True)) ** 2).mean((0, 2, 3))
            mean.mul_(0.9).add_(0.1 * m.detach())
            var.mul_(0.9).add_(0.1 * v.detach() * n / (n - 1))
        else:
            m, v = mean, var
        scale = self.p[f"{name}.weight"] / torch.sqrt(v + 1e-5)
        return (x - m[:, None, None]) * scale[:, None, None] + self.p[f"{name}.bias"][:, None, None]

    def activate(self, x: Tensor, stage: int, mask: Tensor | None = None) -> Tensor:
        """Dropout, then the k units with the largest Σ|x|, then ReLU."""
        if mask is not None:
            x = x * mask[:, :, None, None]
        if self.active is not None:
            k = int(self.active[stage] * x.shape[1] + 1e-9)
            score = x.detach().abs().sum((2, 3))
            won = torch.zeros_like(score)
            for row, values in zip(won, score, strict=True):
                limit = sorted(values.tolist(), reverse=True)[k] if k < len(values) else -1.0
                row[values > limit] = 1.0
            x = x * won[:, :, None, None]
        return x.clamp(min=0)

    def __call__(self, x: Tensor, masks: Masks | None = None, train: bool = True) -> tuple[Tensor, list[Tensor]]:
        """Logits, and which units of each stage are active."""
        x = F.conv2d(x, self.p["stem.weight"], padding=1)
        x, fired = self.norm("stem_norm", x, train).clamp(min=0), []
        for l in range(self.stages):
            at, stride = f"stages.{l}.0", 2 if l else 1
            y = F.conv2d(x, self.p[f"{at}.conv1.weight"], stride=stride, padding=1)
            y = self.activate(self.norm(f"{at}.norm1", y, train), l)
            if f"{at}.shortcut.weight" in self.p:
                x = F.conv2d(x, self.p[f"{at}.shortcut.weight"], stride=stride)
                x = self.norm(f"{at}.shortcut_norm", x, train)
            y = F.conv2d(y, self.p[f"{at}.conv2.weight"], padding=1)
            x = self.activate(self.norm(f"{at}.norm2", y, train) + x, l, masks[l] if masks else None)
            fired.append(x.detach().sum((2, 3)) > 0)
        x = x.mean((2, 3))
        z = [x @ self.p["head.weight"].T + self.p["head.bias"]]
        if train and "head.turned.weight" in self.p:
            z += [x @ w.T + b for w, b in zip(self.p["head.turned.weight"], self.p["head.turned.bias"], strict=True)]
        return torch.cat(z, 1), fired

    def gradient(self, loss: Tensor) -> State:
        return dict(zip(self.p, torch.autograd.grad(loss, list(self.p.values())), strict=True))

    def vector(self) -> Tensor:
        """All weights end to end, kernels channels-last."""
        return torch.cat([_laid(v.detach()) for v in self.p.values()])


def _laid(t: Tensor) -> Tensor:
    return (t.permute(0, 2, 3, 1) if t.dim() == 4 else t).reshape(-1)


def flat(gradients: State) -> Tensor:
    return torch.cat([_laid(g) for g in gradients.values()])


def ce(z: Tensor, y: Tensor) -> Tensor:
    return -torch.stack([torch.log_softmax(row, 0)[c] for row, c in zip(z, y.tolist(), strict=True)]).mean()


def mse(a: Tensor, b: Tensor) -> Tensor:
    return ((a - b) ** 2).mean()


class Reservoir:
    """Vitter's algorithm R, an example at a time."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity, self.generator = capacity, generator(seed, "episodic")
        self.rows: list[tuple[Tensor, ...]] = []
        self.seen = 0

    def recall(self, n: int) -> list[tuple[Tensor, ...]]:
        ticket = torch.rand(self.capacity, generator=self.generator)[: len(self.rows)]
        return [self.rows[i] for i in ticket.argsort(descending=True)[:n].tolist()]

    def remember(self, rows: list[tuple[Tensor, ...]]) -> None:
        u = torch.rand(len(rows), generator=self.generator, dtype=torch.float64).tolist()
        for row, draw in zip(rows, u, strict=True):
            if self.seen < self.capacity:
                self.rows.append(row)
            else:
                slot = int(draw * (self.seen + 1))
                if slot < self.capacity:
                    self.rows[slot] = row
            self.seen += 1


class Balanced(Reservoir):
    """The same number of each class: the examples with the highest keys, an example at a time."""

    def __init__(self, capacity: int, seed: int) -> None:
        super().__init__(capacity, seed)
        self.keys: list[float] = []

    def remember(self, rows: list[tuple[Tensor, ...]]) -> None:
        new = torch.rand(len(rows), generator=self.generator, dtype=torch.float64).tolist()
        held = len(self.rows)
        every, keys = self.rows + rows, self.keys + new
        ranks = []
        for (_, label, *_), key in zip(every, keys, strict=True):
            ranks.append(sum(int(o[1]) == int(label) and k > key for o, k in zip(every, keys, strict=True)))
        best = sorted(range(len(every)), key=lambda i: (ranks[i], -keys[i]))
        kept = set(best[: self.capacity])
        leaving = [i for i in reversed(best) if i < held and i not in kept]
        for i in sorted(kept - set(range(held))):
            if len(self.rows) < self.capacity:
                self.rows.append(every[i])
                self.keys.append(keys[i])
            else:
                slot = leaving.pop(0)
                self.rows[slot], self.keys[slot] = every[i], keys[i]


class Plain:
    """What all methods share: the loop, augmentation, replay and plain SGD."""

    draws = 0
    joint = False
    sparse: list[float] | None = None

    def __init__(self, stream: Stream, seed: int, buffer: int, **s: float) -> None:
        self.stream, self.seed, self.s = stream, seed, s
        data = stream.data
        start = networks.build(
            "small", data.image_shape, data.num_classes, generator(seed, "network"), width=int(s["width"]),
            active=self.sparse, turned=s.get("turned", 0) > 0,
        )  # fmt: skip
        self.net = Network(dict(start.state_dict()), self.sparse)
        self.buffer = Reservoir(buffer, seed)
        self.augmenting, self.ordering = generator(seed, "augment"), generator(seed, "order")
        self.velocity: State = {}
        self.losses: list[float] = []
        self.matrix: list[list[float]] = []
        self.begin()

    def begin(self) -> None: ...

    def normalise(self, x: Tensor) -> Tensor:
        return (x.double() / 255 - self.s["mean"]) / self.s["std"]

    def augment(self, images: list[Tensor]) -> Tensor:
        pad, made = int(self.s["pad"]), []
        u = torch.rand(3, len(images), generator=self.augmenting)
        for i, image in enumerate(images):
            h, w = image.shape[1:]
            wide = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)))
            top, left = (int(u[axis, i] * (2 * pad + 1)) for axis in (0, 1))
            crop = wide[:, top : top + h, left : left + w]
            made.append(torch.from_numpy((crop[:, :, ::-1] if u[2, i] < 0.5 else crop).copy()))
        return self.normalise(torch.stack(made))

    def learn(self) -> None:
        train = [task.train for task in self.stream.tasks]
        for t, index in enumerate([torch.cat(train)] if self.joint else train):
            steps, size, epochs = (
                max(1, len(index) // int(self.s["batch"])),
                int(self.s["batch"]),
                int(self.s["epochs"]),
            )
            if self.s.get("fill") and len(index) < size:  # a batch that is filled up counts as a part of one
                epochs = math.ceil(epochs * len(index) / size)
            while steps * epochs < min(self.s.get("min_steps", 0), 3 * len(index)):
                epochs += 1
            for epoch in range(epochs):
                order = index[torch.randperm(len(index), generator=self.ordering)]
                total = sum(self.step(order[i * size : (i + 1) * size]) for i in range(steps))
                self.losses.append(total / steps)
                self.after_epoch(epoch)
            self.after_task(t, index)
            self.matrix.append(self.test())

    def step(self, index: Tensor) -> float:
        raw, y = self.stream.data.train_images[index], self.stream.data.train_labels[index]
        x, own = self.augment(list(raw)), len(raw)
        n = min(int(self.s["replay"]), len(self.buffer.rows))
        missing = min(int(self.s["batch"]) - own, n) if self.s.get("fill") and self.draws else 0
        if missing > 0:
            images, labels, *_ = (torch.stack(column) for column in zip(*self.buffer.recall(missing), strict=True))
            x, y = torch.cat([x, self.augment(list(images))]), torch.cat([y, labels])
        recalled = []
        for _ in range(self.draws if n else 0):
            rows = self.buffer.recall(n)
            images, labels, *extra = (torch.stack(column) for column in zip(*rows, strict=True))
            recalled.append((self.augment(list(images)), labels, *extra))
        loss, logits, fired = self.loss(x, y, recalled)
        self.observe(y, fired)
        if self.draws:
            self.buffer.remember(list(zip(raw, y[:own], *(e[:own] for e in self.extra(logits)), strict=True)))
        self.descend(self.adjusted(self.net.gradient(loss), recalled))
        self.after_step()
        return float(loss.detach())

    def descend(self, gradients: State) -> None:
        for name, p in self.net.p.items():
            g = gradients[name] + self.s.get("weight_decay", 0.0) * p.detach()
            if momentum := self.s.get("momentum", 0.0):
                g = self.velocity[name] = momentum * self.velocity.get(name, torch.zeros_like(g)) + g
            p.data.sub_(self.s["lr"] * g)

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        z, fired = self.net(x)
        return ce(z, y), z, fired

    def extra(self, logits: Tensor) -> list[Tensor]:
        return []

    def observe(self, y: Tensor, fired: list[Tensor]) -> None: ...

    def adjusted(self, gradients: State, recalled: Recalled) -> State:
        return gradients

    def after_step(self) -> None: ...

    def after_epoch(self, epoch: int) -> None: ...

    def after_task(self, t: int, index: Tensor) -> None: ...

    @property
    def answers(self) -> Network:
        return self.net

    def test(self) -> list[float]:
        """Class-IL accuracy on each task's test images, in percent."""
        found = []
        for task in self.stream.tasks:
            z = self.answers(self.normalise(self.stream.data.test_images[task.test]), train=False)[0]
            found.append(100 * float((z.argmax(1) == self.stream.data.test_labels[task.test]).double().mean()))
        return found


class Average:
    """Eq. 3, with the ramp of the published implementation."""

    def __init__(self, net: Network, seed: int, role: str) -> None:
        self.net, self.generator, self.step = net.copy(), generator(seed, role), 0

    def consolidate(self, working: Network, r: float, alpha: float) -> None:
        self.step += 1
        if torch.rand((), generator=self.generator) < r:
            decay = min(1 - 1 / (self.step + 1), alpha)
            for name, p in self.net.p.items():
                p.data.copy_(decay * p.data + (1 - decay) * working.p[name].data)


class SGD(Plain): ...


class Joint(Plain):
    joint = True


class ER(Plain):
    draws = 1

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        z, fired = self.net(torch.cat([x, *(b[0] for b in recalled)]))
        return ce(z, torch.cat([y, *(b[1] for b in recalled)])), z[: len(y)], fired


class ERACE(Plain):
    draws = 1

    def begin(self) -> None:
        self.seen: set[int] = set()

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        z, fired = self.net(x)
        absent = sorted(self.seen - set(y.tolist()))
        masked = z.clone()
        masked[:, absent] = -1e30
        loss = ce(masked, y)
        for images, labels in recalled:
            loss = loss + ce(self.net(images)[0], labels)
        return loss, z, fired

    def observe(self, y: Tensor, fired: list[Tensor]) -> None:
        self.seen |= set(y.tolist())


class DERpp(Plain):
    draws = 2

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        z, fired = self.net(x)
        loss = ce(z, y)
        if recalled:
            (first, _, logits), (second, labels, _) = recalled
            loss = loss + self.s["alpha"] * mse(self.net(first)[0], logits)
            loss = loss + self.s["beta"] * ce(self.net(second)[0], labels)
        return loss, z, fired

    def extra(self, logits: Tensor) -> list[Tensor]:
        return [logits.detach()]


class CLSER(Plain):
    draws = 1

    def begin(self) -> None:
        self.slow = {name: Average(self.net, self.seed, name) for name in ("plastic", "stable")}

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        if not recalled:
            z, fired = self.net(x)
            return ce(z, y), z, fired
        ((images, labels),) = recalled
        z_m, _ = self.net(images)
        z, fired = self.net(torch.cat([x, images]))
        plastic, stable = (a.net(images)[0].detach() for a in self.slow.values())
        p, s = (torch.softmax(v, 1)[range(len(labels)), labels] for v in (plastic, stable))
        target = torch.where((p >= s)[:, None], plastic, stable)
        return ce(z, torch.cat([y, labels])) + self.s["reg"] * mse(z_m, target), z[: len(y)], fired

    def after_step(self) -> None:
        for name, average in self.slow.items():
            average.consolidate(self.net, self.s[f"r_{name}"], self.s["alpha"])

    @property
    def answers(self) -> Network:
        return self.slow["stable"].net


class AGEM(Plain):
    draws = 1

    def adjusted(self, gradients: State, recalled: Recalled) -> State:
        for images, labels in recalled:
            reference = self.net.gradient(ce(self.net(images)[0], labels))
            dot, own = flat(gradients) @ flat(reference), flat(reference) @ flat(reference)
            if dot < 0:
                gradients = {name: g - dot / own * reference[name] for name, g in gradients.items()}
        return gradients


class LwF(Plain):
    def begin(self) -> None:
        self.old: list[int] = []
        self.teacher = self.net.copy()

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        z, fired = self.net(x)
        loss = ce(z, y)
        if self.old:
            t = self.s["temperature"]
            target = torch.softmax(self.teacher(x, train=False)[0].detach()[:, self.old] / t, 1)
            loss = loss - self.s["alpha"] * (target * torch.log_softmax(z[:, self.old] / t, 1)).sum(1).mean()
        return loss, z, fired

    def after_task(self, t: int, index: Tensor) -> None:
        self.teacher = self.net.copy()
        self.old = sorted({*self.old, *self.stream.data.train_labels[index].tolist()})


class EWC(Plain):
    def begin(self) -> None:
        self.fisher = {name: torch.zeros_like(p) for name, p in self.net.p.items()}
        self.anchor = {name: p.detach().clone() for name, p in self.net.p.items()}

    def adjusted(self, gradients: State, recalled: Recalled) -> State:
        made = {}
        for name, g in gradients.items():
            weight = 2 * self.s["penalty"] * self.fisher[name]
            made[name] = (g + weight * (self.net.p[name].detach() - self.anchor[name])) / (1 + self.s["lr"] * weight)
        return made

    def after_task(self, t: int, index: Tensor) -> None:
        draw = generator(self.seed, f"after_task/{t}")
        order = index[torch.randperm(len(index), generator=draw)]
        total = {name: torch.zeros_like(p) for name, p in self.net.p.items()}
        for part in order.split(32):
            sign = 2.0 * torch.randint(2, part.shape, generator=draw) - 1
            z, _ = self.net(self.normalise(self.stream.data.train_images[part]), train=False)
            log_p = torch.log_softmax(z, 1)[range(len(part)), self.stream.data.train_labels[part]]
            for name, g in self.net.gradient((sign * log_p).sum()).items():
                total[name] += g**2
        for name, f in self.fisher.items():
            self.fisher[name] = self.s["gamma"] * f + total[name] / len(index)
            self.anchor[name] = self.net.p[name].detach().clone()


class SCoMMER(Plain):
    draws = 1
    sparse = [0.9, 0.8]  # noqa: RUF012

    def begin(self) -> None:
        self.slow = Average(self.net, self.seed, "coin")
        self.generator = generator(self.seed, "code")
        width, classes = int(self.s["width"]), self.stream.data.num_classes
        self.units = [width * 2**l for l in range(self.net.stages)]
        self.a_s = [np.zeros((classes, n), int) for n in self.units]
        self.p_s = [np.zeros((classes, n)) for n in self.units]
        self.retained = [int(min(1.1 * a * n, n) + 1e-9) for a, n in zip(self.sparse, self.units, strict=True)]
        self.p_h = [np.array([1.0] * k + [0.0] * (n - k)) for k, n in zip(self.retained, self.units, strict=True)]

    def mask(self, y: Tensor) -> Tensor:
        """Algorithm 3 for the last stage; one draw for the batch."""
        n = self.units[-1]
        clock = torch.empty(1, n).exponential_(generator=self.generator)[0].double().numpy()
        u = torch.rand(1, n, generator=self.generator)[0].double().numpy()
        with np.errstate(divide="ignore"):
            first = np.argsort(clock / self.p_h[-1])[: self.retained[-1]]
        heterogeneous = np.isin(np.arange(n), first).astype(float)
        rows = []
        for c in y.tolist():
            p = self.p_s[-1][c].astype(np.float32)
            rows.append((u < p).astype(float) if p.sum() > 0 else heterogeneous)
        return torch.from_numpy(np.stack(rows))

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        mask = self.mask(y)
        loss = torch.zeros((), dtype=torch.float64)
        for images, labels in recalled:
            z_m, _ = self.net(images)
            loss = loss + ce(z_m, labels) + self.s["gamma"] * mse(z_m, self.slow.net(images)[0].detach())
        z, fired = self.net(x, [None] * (self.net.stages - 1) + [mask])
        return loss + ce(z, y), z, fired

    def observe(self, y: Tensor, fired: list[Tensor]) -> None:
        for a_s, f in zip(self.a_s, fired, strict=True):
            for c, row in zip(y.tolist(), f.numpy(), strict=True):
                a_s[c] += row

    def after_step(self) -> None:
        self.slow.consolidate(self.net, self.s["r"], self.s["alpha"])

    def refresh_semantic(self) -> None:
        for p_s, a_s in zip(self.p_s, self.a_s, strict=True):
            for c, row in enumerate(a_s):
                p_s[c] = [1 - math.exp(-self.s["pi_s"] * v / max(row.max(), 1)) for v in row]

    def after_epoch(self, epoch: int) -> None:
        if epoch > self.s["warmup"]:
            self.refresh_semantic()

    def after_task(self, t: int, index: Tensor) -> None:
        for l, a_s in enumerate(self.a_s):
            a_g = a_s.sum(0)
            self.p_h[l] = np.exp(-self.s["pi_h"] * a_g / a_g.max())
        self.refresh_semantic()

    @property
    def answers(self) -> Network:
        return self.slow.net


class Plus(SCoMMER):
    """The variant plus: balanced loss, teacher of earlier classes, average over part of a task, turned images."""

    def begin(self) -> None:
        super().begin()
        self.buffer = Balanced(self.buffer.capacity, self.seed)
        self.labels: list[int] = []  # of this task so far
        self.consolidated = 0  # steps so far
        self.earlier: set[int] = set()
        self.snapshot = self.slow.net.copy()
        self.turning = generator(self.seed, "turning")

    def turn(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Turn images one by one: each turn of class c is the class c + 4, c + 8 or c + 12 of four."""
        images, labels = [], []
        for image, label, (whether, which) in zip(x.numpy(), y.tolist(), u.T.tolist(), strict=True):
            k = 1 + int(3 * which) if whether < self.s["turned"] else 0
            images.append(np.rot90(image, k, (1, 2)))
            labels.append(label + k * self.stream.data.num_classes)
        return torch.from_numpy(np.stack(images)), torch.tensor(labels)

    def log_shares(self, y: Tensor, replay: bool) -> Tensor:
        made = []
        task = self.labels + y.tolist()
        held = [int(row[1]) for row in self.buffer.rows]
        for c in range(self.stream.data.num_classes):
            share = task.count(c) / len(task)
            if replay:
                share = 0.5 * share + 0.5 * held.count(c) / len(held)
            made.append(math.log(max(share, 1e-4)))
        return torch.tensor(made, dtype=torch.float64)

    def loss(self, x: Tensor, y: Tensor, recalled: Recalled) -> Result:
        mask, turns = self.mask(y), 4 if self.s["turned"] else 1
        tau = min(self.s["balance"], max(1.0, self.s["balance"] * self.task_steps() / self.s["long"]))
        shift = tau * self.log_shares(y, bool(recalled)).repeat(turns)
        recalled, target = [(b[0], b[1]) for b in recalled], y
        if self.s["turned"]:
            n = sum(len(labels) for _, labels in recalled)
            u = torch.rand(2, n + len(y), generator=self.turning)
            recalled = [self.turn(images, labels, u[:, :n]) for images, labels in recalled]
            x, target = self.turn(x, y, u[:, n:])
        loss = torch.zeros((), dtype=torch.float64)
        for images, labels in recalled:
            z_m, _ = self.net(images)
            loss = loss + ce(z_m + shift, labels) + self.s["gamma"] * mse(z_m, self.slow.net(images)[0].detach())
        z, fired = self.net(x, [None] * (self.net.stages - 1) + [mask])
        loss = loss + ce(z + shift, target)
        classes = self.stream.data.num_classes
        absent = [c + k * classes for k in range(turns) for c in sorted(self.earlier - set(self.labels))]
        if recalled:
            teacher = self.slow.net if self.s["own_teacher"] else self.snapshot
            taught = teacher(x)[0].detach()
            if absent:
                loss = loss + self.s["teach"] * mse(z[:, absent], taught[:, absent])
        return loss, z, fired

    def observe(self, y: Tensor, fired: list[Tensor]) -> None:
        super().observe(y, fired)
        self.labels += y.tolist()

    def task_steps(self) -> int:
        task = self.stream.tasks[len(self.matrix)].train
        return int(self.s["epochs"]) * (len(task) // int(self.s["batch"]))

    def after_step(self) -> None:
        self.consolidated += 1
        window = min(self.s["horizon"] * self.task_steps(), self.s["recent"] * self.consolidated or math.inf)
        self.slow.consolidate(self.net, self.s["r"], max(0.0, 1 - 1 / (self.s["r"] * window)))

    def after_task(self, t: int, index: Tensor) -> None:
        super().after_task(t, index)
        self.earlier |= set(self.labels)
        self.labels = []
        self.snapshot = self.slow.net.copy()


class NCM(Plain):
    """Class means of the features of a network that stays as it is; all rows are kept, and nothing is summed up."""

    def begin(self) -> None:
        self.rows: list[list[np.ndarray]] = [[] for _ in range(self.stream.data.num_classes)]
        for name, value in (("weight", 0.0), ("bias", -1e4)):
            self.net.p[f"head.{name}"].data.fill_(value)

    def features(self, x: Tensor) -> np.ndarray:
        """The answers of as many heads as there are units, each of which reports one."""
        probe = self.net.copy()
        units = probe.p["head.weight"].shape[1]
        probe.p["head.weight"], probe.p["head.bias"] = torch.eye(units).double(), torch.zeros(units).double()
        return probe(x, train=False)[0].detach().numpy()

    def step(self, index: Tensor) -> float:
        y = self.stream.data.train_labels[index].tolist()
        new = self.features(self.augment(list(self.stream.data.train_images[index])))
        means = [np.mean(rows, 0) if rows else np.zeros(new.shape[1]) for rows in self.rows]
        for c, row in zip(y, new, strict=True):
            self.rows[c].append(row)
        return float(np.mean([(row - means[c]) ** 2 for c, row in zip(y, new, strict=True)]))

    def covariance(self, rows: np.ndarray) -> np.ndarray:
        return np.diag(rows.var(0))

    def after_epoch(self, epoch: int) -> None:
        seen = [c for c, rows in enumerate(self.rows) if rows]
        means = {c: np.mean(self.rows[c], 0) for c in seen}
        centred = np.concatenate([np.array(self.rows[c]) - means[c] for c in seen])
        inverse = np.linalg.inv(self.covariance(centred))
        middle = np.mean(list(means.values()), 0)
        spread = np.mean([(m - middle) @ inverse @ (m - middle) for m in means.values()]) / 2
        for c in range(len(self.rows)):
            w, b = np.zeros_like(middle), -1e4 - spread
            if c in means:  # half the difference of two squared distances
                w = inverse @ (means[c] - middle)
                b = (middle @ inverse @ middle - means[c] @ inverse @ means[c]) / 2
            self.net.p["head.weight"].data[c], self.net.p["head.bias"].data[c] = torch.from_numpy(w), float(b)


class SLDA(NCM):
    def covariance(self, rows: np.ndarray) -> np.ndarray:
        """The covariance with all correlations between features smaller."""
        found = np.cov(rows.T, bias=True)
        return np.asarray((1 - self.s["shrinkage"]) * found + self.s["shrinkage"] * np.diag(np.diag(found)))


PLAIN: dict[str, Callable[..., Plain]] = {
    "sgd": SGD, "joint": Joint, "er": ER, "er-ace": ERACE, "der++": DERpp, "cls-er": CLSER, "agem": AGEM, "lwf": LwF,
    "ewc": EWC, "ncm": NCM, "slda": SLDA, "scommer": SCoMMER,
}  # fmt: skip
