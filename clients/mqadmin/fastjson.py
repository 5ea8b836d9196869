"""JSON in the indented layout of fastjson: members by name, tabs, and the first entry of a map by number unbroken.

{
    "brokerAddrs":{0:"10.0.0.1:10911"
    },
    "brokerName":"broker-a"
}
"""

import json
from typing import Final

import msgspec

_TAB: Final = "\t"


def indented(value: object) -> str:
    """Return a struct, or maps and lists of structs, as text. Members that are None are left out."""
    return _text(msgspec.to_builtins(value), 0)


def _text(value: object, depth: int) -> str:
    inner, outer = "\n" + _TAB * (depth + 1), "\n" + _TAB * depth
    if isinstance(value, dict):
        members = [
            f"{inner if isinstance(name, str) else ''}{json.dumps(name, ensure_ascii=False)}:{_text(item, depth + 1)}"
            for name, item in sorted(value.items())
            if item is not None
        ]
        return f"{{{','.join(members)}{outer}}}" if members else "{}"
    if isinstance(value, list):
        items = [inner + _text(item, depth + 1) for item in value]
        return f"[{','.join(items)}{outer}]" if items else "[]"
    return json.dumps(value, ensure_ascii=False)
