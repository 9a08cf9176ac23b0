"""Owned randomness: every part draws from a generator of its own, never from a global one."""

from hashlib import sha256

import torch


def derive(seed: int, role: str) -> int:
    """A seed for one role of an experiment, unrelated to those of the other roles."""
    return int.from_bytes(sha256(f"{seed}/{role}".encode()).digest()[:7], "big")


def generator(seed: int, role: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for `role` ("episodic", "augment", ...), a function of seed and role alone."""
    return torch.Generator(device).manual_seed(derive(seed, role))
