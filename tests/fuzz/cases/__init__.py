"""Fuzzers of the compiled modules: one function per module, which makes an input from random numbers, passes it to the
module and to its pure-Python version, and asserts that both results are equal.

    FUZZERS["decode"](rng)      one execution; AssertionError: the results differ

Inputs are those of tests/protocol/compiled, and damaged forms of them. Bytes that C code reads are in memory of exactly
their length (`exact`), so that AddressSanitizer reports the first byte read beyond them.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz.cases import frames, log, reads, tool

Fuzzer = Callable[[Random], None]

FUZZERS: Final[dict[str, Fuzzer]] = {
    "decode": frames.decode,
    "header": frames.header,
    "msgpack_header": frames.msgpack_header,
    "properties": frames.properties,
    "pull": frames.pull,
    "signed": frames.signed,
    "hmac_sha1": frames.hmac_sha1,
    "batch": frames.batch,
    "send_responses": frames.send_responses,
    "record": log.record,
    "queue_tail": log.queue_tail,
    "dispatch": log.dispatch,
    "counts": log.counts,
    "index": log.index,
    "gather": reads.gather,
    "messages": reads.messages,
    "columns": reads.columns,
    "stored_appends": reads.stored_appends,
    "in_flight": tool.in_flight,
    "syncs": tool.syncs,
    "faults": tool.faults,
}
