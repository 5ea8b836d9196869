"""The cluster secret: both ends of a link show that they have it, before HELLO.

    follower                      leader
    CHALLENGE(nonce)      ──▶
                          ◀──     CHALLENGE(nonce)
    PROOF("follower")     ──▶                         checked before the leader proves anything
                          ◀──     PROOF("leader")     checked before HELLO

A proof is HMAC-SHA256 over a role and both nonces. The role keeps a peer from sending a proof back, the nonces keep it
from repeating an older one. The secret itself never leaves the process.

This proves the identity of the peer at that moment, and no more. The frames after it are neither encrypted nor signed:
a machine in between can read and change them. Only TLS protects against that. A short secret can be guessed offline
from one recorded handshake, so `haClusterSecret` has at least 16 bytes.

Without a secret on both sides there is no handshake. With a secret on one side only, the link is refused with a line
that names the setting.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.ha.core.messages import Hello, Refused
from skylarkmq.broker.ha.link.frames import CHALLENGE_BYTES, Challenge, Frame, Proof

LEADER: Final = b"leader"
FOLLOWER: Final = b"follower"
MISSING: Final = "this group has a cluster secret: set haClusterSecret on the node that connects"
UNEXPECTED: Final = "this node has no cluster secret: set haClusterSecret here, as on the node that connects"
WRONG: Final = "the cluster secrets differ: set the same haClusterSecret on all nodes of the group"


class HandshakeError(ValueError):
    """The peer is refused. `tells`: the reason may be sent to it."""

    def __init__(self, reason: str, *, tells: bool = True) -> None:
        super().__init__(reason)
        self.tells = tells


class Handshake:
    """One side of one connection. `done`: HELLO may follow.

    `secret` None: none is set. `nonce` returns new random bytes.
    """

    def __init__(
        self,
        secret: bytes | None,
        *,
        connects: bool,
        nonce: Callable[[], bytes] = lambda: secrets.token_bytes(CHALLENGE_BYTES),
    ) -> None:
        self.done = secret is None
        self._secret = secret
        self._connects = connects
        self._own = nonce()
        self._theirs: bytes | None = None

    def __repr__(self) -> str:
        return f"<Handshake connects={self._connects} done={self.done}>"

    def begin(self) -> list[Frame]:
        """Return the frames to send once the connection is open."""
        return [Challenge(self._own)] if self._connects and self._secret is not None else []

    def receive(self, frame: Frame) -> list[Frame]:
        """Return the frames to send after one that arrived before `done`, or a handshake frame after it.

        Raises HandshakeError.
        """
        if self._secret is None:
            raise HandshakeError(UNEXPECTED)
        match frame:
            case Refused(_, reason):
                raise HandshakeError(f"refused: {reason}", tells=False)
            case Challenge(nonce) if self._theirs is None and not self.done:
                self._theirs = nonce
                return [self._proof(self._secret)] if self._connects else [Challenge(self._own)]
            case Proof(mac) if self._theirs is not None and not self.done:
                if not hmac.compare_digest(mac, self._mac(self._secret, LEADER if self._connects else FOLLOWER)):
                    raise HandshakeError(WRONG)
                self.done = True
                return [] if self._connects else [self._proof(self._secret)]
            case Hello():
                raise HandshakeError(MISSING)
            case _:
                raise HandshakeError(f"{type(frame).__name__} during the handshake of the cluster secret")

    def _proof(self, secret: bytes) -> Proof:
        return Proof(self._mac(secret, FOLLOWER if self._connects else LEADER))

    def _mac(self, secret: bytes, role: bytes) -> bytes:
        theirs = self._theirs or b""
        followers, leaders = (self._own, theirs) if self._connects else (theirs, self._own)
        return hmac.digest(secret, role + followers + leaders, "sha256")
