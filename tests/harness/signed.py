"""Signed requests, as official clients send them, without this project's own code for signatures.

The content is the values of all ext fields in the order of their names, then the body; HMAC-SHA1 in base64.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

from tests.harness.raw import texts


def signed(username: str, password: str, ext: Mapping[str, object] | None = None, body: bytes = b"") -> dict[str, str]:
    """Return the ext fields of a request, with the access key and the signature of a user."""
    fields = texts(ext or {}) | {"AccessKey": username}
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    return fields | {"Signature": b64encode(hmac.digest(password.encode(), content, "sha1")).decode()}
