"""A command under the sanitizers loads the sanitized modules, and ends at the first finding."""

import subprocess
import sys

import pytest

from tests.fuzz import sanitized

pytestmark = pytest.mark.skipif(not sanitized.can_build(), reason="no gcc with sanitizers here")

OVERFLOW = "import ctypes; ctypes.memmove(ctypes.create_string_buffer(40), ctypes.create_string_buffer(10), 30)"


@pytest.mark.daemon
def test_a_finding_ends_the_process() -> None:
    """The exit code is 1, and the report names the access."""
    command = (sys.executable, "-c", OVERFLOW)
    ended = subprocess.run(command, env=sanitized.environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "AddressSanitizer: heap-buffer-overflow" in ended.stderr
