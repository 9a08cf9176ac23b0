"""Turn a user's inputs into images [N, C, H, W]: rows of features, images, or anything through `features`."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from scommer.data.dataset import Layout, as_nchw
from scommer.data.folder import as_array
from scommer.device import choose_device
from scommer.errors import RunWarning, UsageError

Features = nn.Module | Callable[[Any], Any]
BATCH = 64  # images that pass through `features` at once
EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class InputForm:
    """The form of one input."""

    dtype: str  # uint8 or float32
    shape: tuple[int, ...]  # (channels, height, width); (1, 1, D) is a row of features
    feature_names: tuple[str, ...] | None = None  # of the columns of a DataFrame
    features: str | None = None  # the fingerprint of what computed the features, if anything did

    @property
    def is_row(self) -> bool:
        """Whether an input is a row of features."""
        return self.shape[:2] == (1, 1)

    @property
    def noun(self) -> str:
        """The word for inputs in messages."""
        return "rows" if self.is_row else "images"

    def __str__(self) -> str:
        if self.is_row:
            return f"rows of {self.shape[2]} features"
        return f"images of {self.dtype} {' × '.join(map(str, self.shape))} (channels, height, width)"


@dataclass(frozen=True)
class Inputs:
    """Checked inputs."""

    x: NDArray[Any]  # [N, C, H, W]
    form: InputForm


def read_inputs(
    given: Any, layout: Layout, known: InputForm | None, features: Features | None, estimator: BaseEstimator
) -> Inputs:
    """Return inputs in the form of those learned before, `known`; without it, in their own form."""
    fingerprint = None if features is None else _fingerprint(features)
    if known and known.features != fingerprint:
        raise UsageError(_wrong_features(known.features, fingerprint))
    if features is not None:
        given = embed(given, features, layout, estimator.device)
    elif _is_images(given):
        given, layout = _stack(given), "NHWC"
    elif isinstance(given, list | tuple) and np.ndim(given[0] if given else 0) > 1:
        given = np.asarray(given)  # a list of arrays
    if getattr(given, "ndim", 0) > 2:
        x = as_nchw(given, layout=layout)
        form = InputForm(str(x.dtype), x.shape[1:])
    else:
        x, names = _rows(given, known, estimator)
        form = InputForm(str(x.dtype), x.shape[1:], names, fingerprint)
    if known and (form.dtype, form.shape) != (known.dtype, known.shape):
        raise UsageError(f"these are {form}: expected {known}, as learned before")
    return Inputs(x, known or form)


def embed(given: Any, features: Features, layout: Layout, device: str | None) -> NDArray[np.float32]:
    """Return the features [N, D] of inputs, computed in batches."""
    if isinstance(features, nn.Module):
        compute = _through_network(features, choose_device(device))
        given = as_nchw(_stack(given), layout="NHWC") if _is_images(given) else as_nchw(given, layout=layout)
    else:
        compute = features
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


def _fingerprint(features: Features) -> str:
    """Return a hash of a network's weights; any other function is trusted to stay the same."""
    if not isinstance(features, nn.Module):
        return "function"
    h = sha256()
    for name, t in sorted(features.state_dict().items()):
        h.update(f"{name}/{t.dtype}/{tuple(t.shape)}/".encode())
        h.update(t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return h.hexdigest()[:16]


def _wrong_features(known: str | None, given: str | None) -> str:
    if known is None:
        return "this classifier learned without `features`: leave them out"
    if given is None:
        return "this classifier learned from `features` of a frozen network: give them, as in load(path, features=net)"
    return "`features` has different weights from the network that this classifier learned with: give that network"


def _is_images(given: Any) -> bool:
    return isinstance(given, Sequence) and len(given) > 0 and isinstance(given[0], Image.Image)


def _stack(images: Sequence[Image.Image]) -> NDArray[np.uint8]:
    """Return Pillow images as an array; grey ones among colour ones become RGB."""
    mode = None if len({image.mode for image in images}) == 1 else "RGB"
    arrays = [as_array(image, mode) for image in images]
    if sizes := sorted({a.shape for a in arrays} - {arrays[0].shape}):
        (h, w), (h0, w0) = sizes[0][:2], arrays[0].shape[:2]
        raise UsageError(
            f"images of {w} × {h} and of {w0} × {h0} pixels: give one size, as read_images(files, size=32)"
        )
    return np.stack(arrays)


def _single_precision(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows as float32; warn about features whose values it cannot tell apart."""
    with np.errstate(over="ignore"):
        single = rows.astype(np.float32)
    if not np.isfinite(single).all():
        raise UsageError("rows have values that are too large for float32 (3e38): divide them first")
    if rows.dtype != np.float32 and len(rows) > 1:
        spread = rows.std(0, dtype=np.float64)
        if len(lost := np.flatnonzero((spread > 0) & (np.abs(single).max(0) * EPSILON > spread / 10))):
            which = ", ".join(map(str, lost[:5]))
            warnings.warn(
                f"float32 cannot tell the values of feature {which} apart: subtract a constant first",
                RunWarning,
                stacklevel=6,
            )
    return single


def _rows(given: Any, known: InputForm | None, estimator: BaseEstimator) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Return rows [N, 1, 1, D] and the names of features, checked as scikit-learn does."""
    if isinstance(given, Tensor):
        given = given.detach().float().cpu().numpy()
    keep_bytes = known is not None and known.dtype == "uint8"  # as classifiers of earlier versions learned them
    array = validate_data(estimator, given, reset=known is None, dtype=None if keep_bytes else "numeric")
    if not keep_bytes:
        array = _single_precision(array)
    if known is None:
        names = getattr(estimator, "feature_names_in_", None)
        return array[:, None, None], None if names is None else tuple(map(str, names))
    return array[:, None, None], known.feature_names
