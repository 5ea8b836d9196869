"""HMAC-SHA1 with a key that is set up once, computed by the OpenSSL functions behind hashlib.

An HMAC copies the two states of its key (RFC 2104), and adds the message to one of them. Through hashlib, the copies
and their Python objects take three times as long as the hash of a message of 300 bytes. Here both states are copied
into one context, which is reused.

`use` sets the functions by their addresses (protocol/hmac_sha1.py), so that a build needs no headers of OpenSSL.
Without them the states come from hashlib. The pure-Python version is protocol/hmac_sha1.py.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.skylarkmq.protocol.compiled.properties import Text

DIGEST_BYTES = cython.declare(cython.Py_ssize_t, 20)
SIGNATURE_BYTES = cython.declare(cython.Py_ssize_t, 28)
PADDING = cython.declare(cython.char, 61)
BASE64 = cython.declare(cython.p_const_char, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

_openssl = cython.declare(Functions)  # all NULL at first


def use(addresses):
    """Compute HMACs with the functions at these addresses from now on, in the order of `protocol.hmac_sha1.FUNCTIONS`.
    Raises MemoryError."""
    n: cython.int
    pointers: cython.pointer(cython.size_t) = cython.cast(cython.pointer(cython.size_t), cython.address(_openssl))
    for n in range(7):
        pointers[n] = addresses[n]
    _openssl.work = _openssl.create()
    if _openssl.work == cython.NULL:
        raise MemoryError


@cython.final
@cython.cclass
class HmacSha1:
    """`inner` and `outer`: the blocks of the key for both states. `sha1` is hashlib.sha1."""

    def __cinit__(self, inner: bytes, outer: bytes, sha1):
        if _openssl.work == cython.NULL:
            self.inner_state, self.outer_state = sha1(inner), sha1(outer)
        else:
            self.inner, self.outer = context_of(inner), context_of(outer)

    def __dealloc__(self):
        if _openssl.work != cython.NULL:
            _openssl.free(self.inner)
            _openssl.free(self.outer)

    def __repr__(self):
        return "<HmacSha1>"

    def signature(self, content, body):
        """Return the HMAC of `content` and `body` in base64."""
        text: cython.char[28]
        first: Py_buffer
        second: Py_buffer
        PyObject_GetBuffer(content, cython.address(first), PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(body, cython.address(second), PyBUF_SIMPLE)
            try:
                encode(self, text, cython.cast(Text, first.buf), first.len, cython.cast(Text, second.buf), second.len)
            finally:
                PyBuffer_Release(cython.address(second))
        finally:
            PyBuffer_Release(cython.address(first))
        return PyBytes_FromStringAndSize(text, SIGNATURE_BYTES)

    @cython.cfunc
    @cython.exceptval(-1)
    def has_signed(
        self,
        given: Text,
        given_size: cython.Py_ssize_t,
        content: Text,
        size: cython.Py_ssize_t,
        body: Text,
        body_size: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether the signature is `given`. The time does not depend on the position of a difference."""
        own: cython.char[28]
        difference: cython.int = 0
        n: cython.Py_ssize_t
        encode(self, own, content, size, body, body_size)
        if given_size != SIGNATURE_BYTES:
            return False
        for n in range(SIGNATURE_BYTES):
            difference |= own[n] ^ given[n]
        return difference == 0


@cython.cfunc
@cython.exceptval(-1)
def encode(
    hmac: HmacSha1,
    signature: cython.p_char,
    content: Text,
    size: cython.Py_ssize_t,
    body: Text,
    body_size: cython.Py_ssize_t,
) -> cython.int:
    """Write the HMAC in base64."""
    found: cython.uchar[20]
    bits: cython.uint
    n: cython.int
    if _openssl.work != cython.NULL:
        digest(hmac, found, content, size, body, body_size)
    else:
        digest_by_hashlib(hmac, found, content, size, body, body_size)
    for n in range(7):
        bits = (found[3 * n] << 16) | (found[3 * n + 1] << 8)
        if n < 6:
            bits |= found[3 * n + 2]
        signature[4 * n] = BASE64[bits >> 18]
        signature[4 * n + 1] = BASE64[bits >> 12 & 63]
        signature[4 * n + 2] = BASE64[bits >> 6 & 63]
        signature[4 * n + 3] = BASE64[bits & 63]
    signature[27] = PADDING
    return 0


@cython.cfunc
@cython.exceptval(-1)
def digest(
    hmac: HmacSha1,
    found: cython.p_uchar,
    content: Text,
    size: cython.Py_ssize_t,
    body: Text,
    body_size: cython.Py_ssize_t,
) -> cython.int:
    """Write the 20 bytes of the HMAC. Raises MemoryError."""
    if not (
        _openssl.copy(_openssl.work, hmac.inner)
        and _openssl.update(_openssl.work, content, cython.cast(cython.size_t, size))
        and _openssl.update(_openssl.work, body, cython.cast(cython.size_t, body_size))
        and _openssl.finish(_openssl.work, found, cython.NULL)
        and _openssl.copy(_openssl.work, hmac.outer)
        and _openssl.update(_openssl.work, found, cython.cast(cython.size_t, DIGEST_BYTES))
        and _openssl.finish(_openssl.work, found, cython.NULL)
    ):
        raise MemoryError
    return 0


@cython.cfunc
@cython.exceptval(-1)
def digest_by_hashlib(
    hmac: HmacSha1,
    found: cython.p_uchar,
    content: Text,
    size: cython.Py_ssize_t,
    body: Text,
    body_size: cython.Py_ssize_t,
) -> cython.int:
    """Do the same without OpenSSL's functions."""
    made: bytes
    inner, outer = hmac.inner_state.copy(), hmac.outer_state.copy()
    inner.update(PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, content), size))
    inner.update(PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, body), body_size))
    outer.update(inner.digest())
    made = outer.digest()
    memcpy(found, PyBytes_AS_STRING(made), cython.cast(cython.size_t, DIGEST_BYTES))
    return 0


@cython.cfunc
@cython.exceptval(check=True)
def context_of(block: bytes) -> Context:
    """Return a new context with the state of SHA-1 after this block. Raises MemoryError."""
    context: Context = _openssl.create()
    if (
        context == cython.NULL
        or not _openssl.init(context, _openssl.sha1(), cython.NULL)
        or not _openssl.update(context, PyBytes_AS_STRING(block), cython.cast(cython.size_t, len(block)))
    ):
        _openssl.free(context)
        raise MemoryError
    return context
