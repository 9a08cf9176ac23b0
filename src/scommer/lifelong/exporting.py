"""A classifier as an ONNX file: raw inputs in, probabilities out, for any runtime."""

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn

from scommer.errors import UsageError
from scommer.lifelong.state import ClassifierState
from scommer.nn.networks import respond

OPSET = 18


class _Predictor(nn.Module):
    """From raw inputs to probabilities: a frozen network if there is one, normalisation, network, softmax."""

    mean: Tensor
    std: Tensor
    unseen: Tensor
    order: Tensor

    def __init__(self, state: ClassifierState, features: nn.Module | None) -> None:
        super().__init__()
        self.features, self.network, self.form = features, state.network.network, state.form
        self.mirrored = state.network.mirrored
        self.register_buffer("mean", state.network.augment.mean)
        self.register_buffer("std", state.network.augment.std)
        self.register_buffer("unseen", torch.from_numpy(~state.seen))
        self.register_buffer("order", torch.from_numpy(state.classes.argsort()))

    def forward(self, x: Tensor) -> Tensor:
        if self.features is not None:
            x = self.features(x)
        x = x.unflatten(1, self.form.shape) if self.form.is_row else x
        x = x.float() / 255 if self.form.dtype == "uint8" else x
        logits = respond(self.network, (x - self.mean) / self.std, self.mirrored).logits
        p: Tensor = logits.masked_fill(self.unseen, -torch.inf).softmax(1)
        return p[:, self.order]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's own messages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def to_onnx(state: ClassifierState, features: nn.Module | None = None, example: Tensor | None = None) -> bytes:
    """Return the classifier as an ONNX model; `example` is an image for `features`, [1, C, H, W]."""
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise UsageError(f"ONNX needs the package {package}: install it with `pip install 'scommer[onnx]'`")
    import onnx

    form = state.form
    if example is None:
        example = torch.zeros((1, *(form.shape[2:] if form.is_row else form.shape)), dtype=getattr(torch, form.dtype))
    elif example.dtype == torch.uint8:
        example = example.float() / 255  # what the frozen network receives
    with _quiet(), torch.no_grad():
        module = copy.deepcopy(_Predictor(state, features)).cpu()
        with suppress(NotImplementedError):  # of torch.export, whose modules have one mode
            module.eval()
        try:
            module(example)
        except RuntimeError as e:
            reason = str(e).splitlines()[0]
            raise UsageError(f"`features` does not take an image like `example` ({reason}): give one that fits") from e
        try:
            made = torch.onnx.export(
                module, (example.expand(2, *example.shape[1:]).contiguous(),), dynamo=True, opset_version=OPSET,
                verbose=False, input_names=["rows" if form.is_row and features is None else "images"],
                output_names=["probabilities"], dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
            )  # fmt: skip
        except torch.onnx.OnnxExporterError as e:
            raise UsageError(
                f"`features` ({type(features).__name__}) cannot be written as ONNX: give the network as a plain module"
            ) from e
    assert made is not None
    model = made.model_proto
    onnx.helper.set_model_props(model, {"classes": json.dumps(np.sort(state.classes).tolist())})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
