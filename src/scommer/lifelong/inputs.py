"""Turn a user's inputs into images [N, C, H, W]: rows of features, images, or anything through `features`."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from scommer.data.dataset import Layout, as_nchw
from scommer.data.folder import as_array
from scommer.errors import RunWarning, UsageError
from scommer.lifelong.frozen import Features, Probe, embed, fingerprint, probe, refuse_other

EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class InputForm:
    """The form of one input."""

    dtype: str  # uint8 or float32
    shape: tuple[int, ...]  # (channels, height, width); (1, 1, D) is a row of features
    feature_names: tuple[str, ...] | None = None  # of the columns of a DataFrame
    features: str | None = None  # the fingerprint of what computed the features, if anything did
    probe: Probe | None = None  # of a frozen network; early files do not have it

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
    if known:
        refuse_other(features, known.features, known.probe, estimator.device)
    answer = None
    if isinstance(features, nn.Module):
        images = as_nchw(_stack(given), layout="NHWC") if _is_images(given) else as_nchw(given, layout=layout)
        given = embed(images, features, estimator.device)
        answer = None if known else probe(features, images.shape[1:], estimator.device)
    elif features is not None:
        given = embed(given, features, estimator.device)
    elif _is_images(given):
        given, layout = _stack(given), "NHWC"
    elif isinstance(given, list | tuple) and np.ndim(given[0] if given else 0) > 1:
        given = np.asarray(given)  # a list of arrays
    if getattr(given, "ndim", 0) > 2:
        x = as_nchw(given, layout=layout)
        form = InputForm(str(x.dtype), x.shape[1:])
    else:
        x, names = _rows(given, known, estimator)
        identity = fingerprint(features) if features is not None and not known else None
        form = InputForm(str(x.dtype), x.shape[1:], names, identity, answer)
    if known and (form.dtype, form.shape) != (known.dtype, known.shape):
        raise UsageError(f"these are {form}: expected {known}, as learned before")
    return Inputs(x, known or form)


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
