"""HMAC-SHA1 with a key that is set up once; the results are in base64, as in signatures.

HMAC (RFC 2104) is written out over two states of SHA-1: copying them takes half the time of copying an HMAC object of
hashlib. The compiled module `hmac_sha1` copies them by calling OpenSSL itself, which takes a quarter of that
(tests/bench/bench_signatures.py). It uses the library with which Python was linked: its functions are found through
hashlib's module, so the project needs neither a second OpenSSL nor its headers. Where that does not find them, the
compiled module copies hashlib's states.
"""

import ctypes
import hashlib
from binascii import b2a_base64
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, Protocol

from skylarkmq.protocol import compiled

FUNCTIONS: Final = (
    "EVP_sha1",
    "EVP_MD_CTX_new",
    "EVP_MD_CTX_free",
    "EVP_DigestInit_ex",
    "EVP_MD_CTX_copy_ex",
    "EVP_DigestUpdate",
    "EVP_DigestFinal_ex",
)
"""The functions of OpenSSL that the compiled module calls."""

_BLOCK_BYTES: Final = 64  # of SHA-1
_INNER, _OUTER = 0x36, 0x5C  # the pads of HMAC


class Hmac(Protocol):
    """HMAC-SHA1 with one key."""

    def signature(self, content: bytes | memoryview, body: bytes | memoryview) -> bytes:
        """Return the HMAC of `content` and `body` in base64."""


class PythonHmacSha1:
    """`inner` and `outer`: the blocks of the key for both states."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: bytes, outer: bytes) -> None:
        self._inner = hashlib.sha1(inner)
        self._outer = hashlib.sha1(outer)

    def __repr__(self) -> str:
        return "<PythonHmacSha1>"

    def signature(self, content: bytes | memoryview, body: bytes | memoryview) -> bytes:
        """Return the HMAC of `content` and `body` in base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        inner.update(body)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


def keyed(secret: bytes, make: Callable[[bytes, bytes], Hmac] | None = None) -> Hmac:
    """Return the HMAC with this key, of the selected version or made by `make`."""
    if len(secret) > _BLOCK_BYTES:
        secret = hashlib.sha1(secret).digest()
    key = secret.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in key) for pad in (_INNER, _OUTER))
    return (make or _selected)(inner, outer)


def addresses() -> tuple[int, ...] | None:
    """Return the addresses of FUNCTIONS in the OpenSSL that hashlib uses; None if they are not found."""
    spec = find_spec("_hashlib")
    if spec is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin if spec.has_location else None)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS]
    except (OSError, AttributeError):
        return None
    return tuple(address for address in found if address is not None)


def _compiled_hmac(inner: bytes, outer: bytes) -> Hmac:
    made: Hmac = _compiled.HmacSha1(inner, outer, hashlib.sha1)
    return made


_compiled: Final = compiled.load("hmac_sha1")
_selected: Final[Callable[[bytes, bytes], Hmac]] = PythonHmacSha1 if _compiled is None else _compiled_hmac
if _compiled is not None and (_found := addresses()) is not None:
    _compiled.use(_found)
