"""The properties once more with some thousand cases, in a process for each subject."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUBJECTS = sorted(path.name for path in HERE.glob("test_*.py") if path.name != Path(__file__).name)


@pytest.mark.long
@pytest.mark.parametrize("subject", SUBJECTS)
def test_with_many_cases(subject: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "thorough"]
    done = subprocess.run([*command, str(HERE / subject)], cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"\d+ passed", done.stdout)
