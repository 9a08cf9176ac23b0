"""Files that are written whole or not at all."""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path

from scommer.errors import RunError


def metadata(content: bytes) -> dict[str, str]:
    """What the header of a safetensors file says beside its tensors."""
    size = int.from_bytes(content[:8], "little")  # of the header, which follows
    told: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return told


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that its name holds either the old content or all of the new, whoever else writes it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with partial.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name, too, survives a power cut
        finally:
            os.close(folder)
    except OSError as e:
        with suppress(OSError):
            partial.unlink()
        raise RunError(
            f"cannot write {path}: {e.strerror or e}; what was saved before is intact: "
            "make room or choose another place, then do the same again"
        ) from e
