"""Settings that hold a secret. RocketMQ's servers return them with all others; mqadmin and the console hide them."""

import re
from typing import Final

_NAME: Final = re.compile(r"secret|passw|credential|token|authenticationuser|exporterheader|accesskey", re.IGNORECASE)
_NO_SECRETS: Final = frozenset({"", "true", "false"})


def is_secret(key: str, value: str) -> bool:
    """Return whether the name of a setting suggests that its value is a secret. A switch is none."""
    return value.lower() not in _NO_SECRETS and _NAME.search(key) is not None
