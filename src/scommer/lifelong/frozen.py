"""Frozen networks: images pass through them in batches, and another network than the one learned with is refused.

A network is known by its weights, and by its answer to made-up images: with the same weights, another architecture
answers differently. The answer does not depend on how a network is written, so the same one may come as a module, from
TorchScript or from torch.export.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scommer.device import choose_device, computing_on
from scommer.errors import UsageError

Features = nn.Module | Callable[[Any], Any]
BATCH = 64  # inputs that pass through `features` at once
ANSWERS = 64  # numbers of an answer that are kept
TOLERANCE = 0.02  # of an answer's largest number; rounding changes it by less, even in half precision


@dataclass(frozen=True)
class Probe:
    """A network's answer to made-up images."""

    shape: tuple[int, ...]  # of an image: channels, height, width
    answer: tuple[float, ...]

    def fits(self, network: nn.Module, device: str | None) -> bool:
        """Return whether a network gives the same answer, up to rounding; True if it does not take such images."""
        if _answered.get(network) == self:
            return True
        try:
            found = np.array(_answer(network, self.shape, device))
        except Exception:  # whatever a network raises: the user's images will show whether it takes those
            return True
        expected = np.array(self.answer)
        margin = TOLERANCE * np.abs(expected).max(initial=0)
        if found.shape != expected.shape or not bool((np.abs(found - expected) <= margin).all()):
            return False
        _answered[network] = self
        return True


_answered: WeakKeyDictionary[nn.Module, Probe] = WeakKeyDictionary()  # not to ask a network again for each prediction


def probe(network: nn.Module, shape: tuple[int, ...], device: str | None) -> Probe | None:
    """Return a network's answer to images of this shape; None if it takes no other images or is random."""
    try:
        found = Probe(shape, _answer(network, shape, device))
    except Exception:  # it may take batches of one size only
        return None
    return found if found.fits(network, device) else None


def _answer(network: nn.Module, shape: tuple[int, ...], device: str | None) -> tuple[float, ...]:
    images = np.random.RandomState(0).rand(2, *shape).astype(np.float32)  # the same in every version of NumPy
    with computing_on(choose_device(device), "fp32", keep_memory=False):
        rows = embed(images, network, device).flatten()
    which = np.linspace(0, len(rows) - 1, min(len(rows), ANSWERS)).astype(int)
    return tuple(rows[which].tolist())


def embed(given: Any, features: Features, device: str | None) -> NDArray[np.float32]:
    """Return the features [N, D] of inputs, computed in batches; a module receives images [N, C, H, W]."""
    compute = _through_network(features, choose_device(device)) if isinstance(features, nn.Module) else features
    try:
        parts = [compute(given[i : i + BATCH]) for i in range(0, len(given), BATCH)]
    except RuntimeError as e:
        raise UsageError(f"`features` does not take these inputs ({str(e).splitlines()[0]}): check their shape") from e
    rows = [np.asarray(p.detach().float().cpu() if isinstance(p, Tensor) else p, np.float32) for p in parts]
    for part, row in enumerate(rows):
        expected = min(BATCH, len(given) - part * BATCH)
        if row.ndim != 2 or len(row) != expected:
            raise UsageError(f"`features` returned shape {row.shape} for {expected} inputs: return [{expected}, D]")
    if not rows:
        raise UsageError("there are no inputs: give at least one")
    return np.concatenate(rows)


def _through_network(network: nn.Module, device: torch.device) -> Callable[[NDArray[Any]], Tensor]:
    """Return a function from images [N, C, H, W] to the network's output; bytes are scaled to 0 … 1."""

    @torch.no_grad()
    def compute(images: NDArray[Any]) -> Tensor:
        training = network.training
        with suppress(NotImplementedError):  # of torch.export, whose modules have one mode
            network.to(device).eval()
        try:
            x = torch.from_numpy(images).to(device)
            output: Tensor = network(x.float() / 255 if x.dtype == torch.uint8 else x)
            return output
        finally:
            with suppress(NotImplementedError):
                network.train(training)

    return compute


def fingerprint(features: Features) -> str:
    """Return a hash of a network's weights; any other function is trusted to stay the same."""
    if not isinstance(features, nn.Module):
        return "function"
    h = sha256()
    for name, t in sorted(features.state_dict().items()):
        h.update(f"{name}/{t.dtype}/{tuple(t.shape)}/".encode())
        h.update(t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return h.hexdigest()[:16]


def refuse_other(features: Features | None, learned: str | None, answer: Probe | None, device: str | None) -> None:
    """Raise an error unless `features` are those learned with, known by their fingerprint and their answer."""
    given = None if features is None else fingerprint(features)
    if given != learned:
        raise UsageError(_difference(given, learned))
    if answer and isinstance(features, nn.Module) and not answer.fits(features, device):
        raise UsageError(
            "`features` has the weights of the network that this classifier learned with, but computes something else: "
            "give a network with the same layers"
        )


def _difference(given: str | None, learned: str | None) -> str:
    if learned is None:
        return "this classifier learned without `features`: leave them out"
    if given is None:
        return "this classifier learned from `features` of a frozen network: give them, as in load(path, features=net)"
    return "`features` has different weights from the network that this classifier learned with: give that network"
