"""How many random inputs a test of the quick tier tries.

A fourth by default, which keeps the quick tier quick. `.ci/run` sets SKYLARK_ALL_ROUNDS, and so does a developer who
changes what such a test compares. Tests with random inputs in large numbers are the fuzz tier.
"""

import os
from typing import Final

PART: Final = 1 if os.environ.get("SKYLARK_ALL_ROUNDS") else 4


def rounds(all_of_them: int) -> int:
    """Return this number if all rounds are wanted, otherwise a fourth of it."""
    return max(1, all_of_them // PART)
