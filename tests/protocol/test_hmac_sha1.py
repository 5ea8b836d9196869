"""HMAC-SHA1 with a key that is set up once: each version against the standard library's."""

import hmac
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from random import Random

import pytest

from skylarkmq.protocol import compiled, hmac_sha1
from skylarkmq.protocol.hmac_sha1 import FUNCTIONS, Hmac, PythonHmacSha1, addresses, keyed

VERSIONS: tuple[Callable[[bytes, bytes], Hmac] | None, ...] = (None, PythonHmacSha1)

WITHOUT_ADDRESSES = """
import ctypes
ctypes.CDLL = lambda path: object()
from skylarkmq.protocol.hmac_sha1 import addresses, keyed
assert addresses() is None
print(keyed(b"key").signature(memoryview(b"content"), b"body").decode(), type(keyed(b"key")).__name__)
"""


def expected(key: bytes, content: bytes) -> bytes:
    return b64encode(hmac.digest(key, content, "sha1"))


@pytest.mark.parametrize("make", VERSIONS, ids=["selected", "python"])
@pytest.mark.parametrize("key_size", [0, 1, 20, 63, 64, 65, 300])
def test_keys_of_every_size(key_size: int, make: Callable[[bytes, bytes], Hmac] | None) -> None:
    """Shorter than, equal to, and longer than a block of SHA-1, which is hashed."""
    key = bytes(range(256)) * 2
    made = keyed(key[:key_size], make)
    for content, body in ((b"", b""), (b"content", b""), (b"", b"body"), (b"content", b"body")):
        assert made.signature(content, body) == expected(key[:key_size], content + body)


@pytest.mark.parametrize("make", VERSIONS, ids=["selected", "python"])
def test_messages_of_every_size(make: Callable[[bytes, bytes], Hmac] | None) -> None:
    """Around each boundary of a block, and in two parts of any size; keys do not disturb each other."""
    random = Random(7)
    keys = [random.randbytes(random.randrange(100)) for _ in range(20)]
    made = [keyed(key, make) for key in keys]
    for size in (*range(200), 4096, 1 << 20):
        number, cut = random.randrange(len(keys)), random.randrange(size + 1)
        content = random.randbytes(size)
        found = made[number].signature(memoryview(content)[:cut], memoryview(content)[cut:])
        assert found == expected(keys[number], content)


def test_a_key_is_not_shown() -> None:
    """Its `repr` is constant."""
    for make in VERSIONS:
        assert repr(keyed(b"secret", make)) in {"<HmacSha1>", "<PythonHmacSha1>"}


def test_only_buffers_are_accepted() -> None:
    """A text is refused, and the next call is not disturbed."""
    made = keyed(b"key")
    for wrong in (("text", b""), (b"", "text"), (b"", None)):
        with pytest.raises(TypeError):
            made.signature(*wrong)
    assert made.signature(b"content", b"body") == expected(b"key", b"contentbody")


def test_openssl_of_hashlib_is_found_or_not_used() -> None:
    """All functions are found where hashlib is linked with a shared OpenSSL."""
    found = addresses()
    assert found is None or (len(found) == len(FUNCTIONS) and all(found))


def test_without_python_openssl_there_are_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without OpenSSL has no module _hashlib."""
    monkeypatch.setattr(hmac_sha1, "find_spec", lambda name: None)
    assert addresses() is None


@pytest.mark.skipif(compiled.load("hmac_sha1") is None, reason="no compiled modules here")
def test_the_compiled_version_works_without_addresses() -> None:
    """It copies the states of hashlib then."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_ADDRESSES], capture_output=True, text=True, env=environment, check=True
    )
    assert run.stdout.split() == [expected(b"key", b"contentbody").decode(), "HmacSha1"]
