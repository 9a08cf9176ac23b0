"""Where it is computed: choosing a device, and naming it in a record."""

import platform
from typing import Any

import torch

from scommer.errors import UsageError


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, or a GPU where there is one."""
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.ones(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # graphs and streams are made on the current one
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        raise UsageError(
            f"device '{wanted}' cannot be used here ({str(e).splitlines()[0]}): try --device cpu"
        ) from None
    return device


def device_facts(device: torch.device) -> dict[str, Any]:
    """Where it was computed."""
    if device.type == "cuda":
        return {"type": "cuda", "name": torch.cuda.get_device_name(device), "precision": precision()}
    name = platform.processor() or platform.machine()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads(), "precision": "fp32"}


def precision() -> str:
    """How float32 convolutions are computed on a GPU."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "fp32"
