"""A trained memory of a finished run, loaded to predict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from scommer.data.dataset import Array, Layout, as_nchw
from scommer.device import choose_device, current
from scommer.engine.augment import Augment
from scommer.engine.evaluate import images_per_pass
from scommer.errors import UsageError, check_name, lookup
from scommer.files import expand_user
from scommer.methods import METHODS
from scommer.nn import networks
from scommer.runs.record import Record
from scommer.runs.settings import setting_types


class Trained:
    """A network with the weights and batch-norm statistics that it was evaluated with."""

    dtype: str | None = None  # of the training images, uint8 or float32, if known
    range: Sequence[float] | None = None  # their smallest and largest value, if known

    def __init__(
        self,
        network: nn.Module,
        augment: Augment,
        class_names: tuple[str, ...],
        image_shape: tuple[int, ...],
        mirrored: bool = False,
    ) -> None:
        self.network, self.augment, self.mirrored = network.eval(), augment, mirrored
        self.class_names, self.image_shape = class_names, image_shape

    def logits(self, images: Array, layout: Layout = "auto") -> Tensor:
        """Return logits [N, C] of raw images, given in the same form as the training images."""
        x = as_nchw(images, layout=layout)
        if x.shape[1:] != self.image_shape:
            given, learned = (" × ".join(map(str, shape)) for shape in (x.shape[1:], self.image_shape))
            raise UsageError(f"these images are {given} (channels, height, width): expected {learned}, as in training")
        if self.dtype and x.dtype != self.dtype:
            raise UsageError(f"these images are {x.dtype}: expected {self.dtype}, as in training")
        return self.respond(torch.from_numpy(x))

    @torch.no_grad()
    def respond(self, x: Tensor) -> Tensor:
        """Return logits [N, C] of raw images in the layout [N, C, H, W]."""
        device = self.augment.mean.device
        with current(device):
            parts = (self.augment.normalise(part.to(device)) for part in x.split(images_per_pass(x, device)))
            return torch.cat([networks.respond(self.network, part, self.mirrored).logits.cpu() for part in parts])

    def predict(self, images: Array, layout: Layout = "auto") -> Tensor:
        """Return the most likely class [N] of each image, among all classes."""
        return self.logits(images, layout).argmax(1)


def load_trained(folder: Path | str, memory: str | None = None, device: str | None = "cpu") -> Trained:
    """Load the memory used for inference, or the one named, of a run that kept its weights."""
    folder = expand_user(folder)
    record = Record.load(folder)
    path = folder / "weights.safetensors"
    if not path.exists():
        raise UsageError(f"{folder} has no weights: run it with --save-weights")
    where = str(choose_device(device))
    try:
        tensors = safetensors.torch.load_file(path, device=where)
    except (OSError, SafetensorError) as e:
        raise UsageError(f"cannot read {path} ({e}): run it again with --fresh --save-weights") from e
    memories = sorted({name.split(".", 1)[0] for name in tensors})
    name = memory or record.inference
    check_name("memory", name, memories)
    weights = with_prefix(f"{name}.", tensors)
    stream = record.stream
    if stream.image_shape is None:
        raise UsageError(f"the record in {folder} is too old for predictions: run it again with --fresh --save-weights")
    made = trained(record.experiment.method, record.settings, stream.classes, stream.image_shape, weights, where)
    made.dtype, made.range = stream.dtype, stream.range
    return made


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def trained(
    method: str,
    settings: Mapping[str, Any],
    classes: Sequence[str],
    image_shape: Sequence[int],
    weights: Mapping[str, Tensor],
    device: torch.device | str,
) -> Trained:
    """Return a method's network with these settings, parameters and statistics."""
    kind = lookup("method", method, METHODS)
    own = {name: settings[name] for name in setting_types(kind) if name in settings}
    further = kind(**own).network_settings()
    size = {k: settings[k] for k in ("width", "depth", "stages")}
    channels, height, width = image_shape
    unused = torch.Generator().manual_seed(0)  # all weights are replaced below
    network = networks.build(
        settings["network"], (channels, height, width), len(classes), unused, **size, **further
    ).to(device)  # fmt: skip
    try:
        network.load_state_dict(weights)
    except RuntimeError as e:
        raise UsageError(f"these weights do not fit the network {settings['network']}; has it changed? {e}") from e
    augment = Augment(0, False, settings["mean"], settings["std"], device, channels=channels)
    return Trained(network, augment, tuple(classes), (channels, height, width), settings.get("mirrored", False))
