"""Owned randomness: every part draws from its own generator, never from a global one."""

from hashlib import sha256

import torch


def derive(seed: int, role: str) -> int:
    """Return a seed for one role of an experiment, unrelated to the seeds of other roles."""
    return int.from_bytes(sha256(f"{seed}/{role}".encode()).digest()[:7], "big")


def generator(seed: int, role: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator for `role` ("episodic", "augment", ...) that depends only on seed and role."""
    return torch.Generator(device).manual_seed(derive(seed, role))
