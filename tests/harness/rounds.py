"""How many random inputs a test of the quick tier tries.

An eighth by default, which keeps the quick tier quick. `.ci/run long` sets SKYLARK_ALL_ROUNDS, and so does a developer
who changes what such a test compares. Tests with random inputs in large numbers are the fuzz tier.
"""

import os
from typing import Final

PART: Final = 1 if os.environ.get("SKYLARK_ALL_ROUNDS") else 8


def rounds(all_of_them: int) -> int:
    """Return this number if all rounds are wanted, otherwise an eighth of it."""
    return max(1, all_of_them // PART)
