"""Changes of attributes in an option: `+message.type=FIFO,-retention` sets one attribute and removes another one."""

from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.protocol.hash_order import bucket_order


def attribute_changes(text: str) -> dict[str, str]:
    """Return the signed names with their values, in the order in which RocketMQ's tool prints them."""
    changes: dict[str, str] = {}
    for change in text.strip().split(","):
        name, equals, value = change.partition("=")
        if not (name.startswith("+") and value) if equals else not name.startswith("-"):
            raise usage_error(f"an attribute must be +name=value (set) or -name (remove), not {change!r}.")
        if name in changes:
            raise usage_error(f"the attribute {name[1:]} is given twice: give it once.")
        changes[name] = value
    return {name: changes[name] for name in bucket_order(changes)}
