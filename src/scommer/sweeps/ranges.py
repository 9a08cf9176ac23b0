"""Lists of whole numbers as text: 0,1,2 or 0-2."""

import re

from scommer.errors import UsageError

MOST = 10_000  # numbers in a range
HINT = "write 0 1 2, 0,1,2 or 0-2"


def numbers(text: str) -> list[int]:
    """Read `0,1,2`, `0-2` or both: `0-2,5`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        ends = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", part)  # a seed has 63 bits
        if not ends:
            raise UsageError(f"'{part}' is not a list of whole numbers: {HINT}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first > last:
            raise UsageError(f"'{part}' ends before it begins: write {last}-{first}")
        if last - first >= MOST:
            raise UsageError(f"'{part}' has {last - first + 1:,} numbers: give at most {MOST:,}")
        found += range(first, last + 1)
    if not found:
        raise UsageError(f"'{text}' has no numbers: {HINT}")
    return found
