"""Which code and which versions produced a result, and when."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch


def code_identity() -> dict[str, Any]:
    """Return the commit of the code (or $SCOMMER_COMMIT without a git history) and a hash of its sources."""
    package = Path(__file__).parent
    identity: dict[str, Any] = {
        "commit": os.environ.get("SCOMMER_COMMIT"),
        "dirty": None,
        "sources": sources(),
    }
    if _git(package, "ls-files", "--error-unmatch", "provenance.py"):
        identity["commit"] = (_git(package, "rev-parse", "HEAD") or "").strip() or None
        identity["dirty"] = bool(_git(package, "status", "--porcelain", "--", "."))
    return identity


@cache
def sources() -> str:
    """Return a hash of the package's source files."""
    package = Path(__file__).parent
    h = sha256()
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".toml")):
        h.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return h.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Return the versions of this package, Python and the libraries that compute."""
    from scommer import __version__

    return {
        "scommer": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def now() -> str:
    """Return the current time (UTC), to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
