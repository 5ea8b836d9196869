"""The handshake of the cluster secret."""

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.messages import Beat, Hello, Refused
from skylarkmq.broker.ha.link.frames import Challenge, Proof
from skylarkmq.broker.ha.link.handshake import MISSING, UNEXPECTED, WRONG, Handshake, HandshakeError

SECRET = b"sixteen bytes or more"


def pair(followers: bytes | None, leaders: bytes | None) -> tuple[Handshake, Handshake]:
    return (
        Handshake(followers, connects=True, nonce=lambda: b"f" * 32),
        Handshake(leaders, connects=False, nonce=lambda: b"l" * 32),
    )


def run(follower: Handshake, leader: Handshake) -> None:
    """Pass frames between both until neither has one to send."""
    to_leader, to_follower = follower.begin(), leader.begin()
    while to_leader or to_follower:
        for_leader, to_leader = to_leader, []
        for_follower, to_follower = to_follower, []
        for frame in for_leader:
            to_follower += leader.receive(frame)
        for frame in for_follower:
            to_leader += follower.receive(frame)


def test_both_sides_prove_the_secret() -> None:
    """Equal secrets: both are done."""
    follower, leader = pair(SECRET, SECRET)
    assert not any(side.done for side in (follower, leader))
    run(follower, leader)
    assert all(side.done for side in (follower, leader))


def test_no_secret_on_both_sides_needs_no_handshake() -> None:
    """Both are done before the first frame."""
    follower, leader = pair(None, None)
    assert follower.begin() == leader.begin() == []
    assert follower.done
    assert leader.done


def test_the_follower_proves_first() -> None:
    """A machine that connects gets no proof to guess from before it has proved the secret."""
    follower, leader = pair(SECRET, SECRET)
    [challenge] = follower.begin()
    assert leader.receive(challenge) == [Challenge(b"l" * 32)]
    with pytest.raises(HandshakeError, match="haClusterSecret"):
        leader.receive(Proof(bytes(32)))
    assert not leader.done


@pytest.mark.parametrize("followers", [b"another secret of size", b"sixteen bytes or morE"])
def test_other_secrets_are_refused(followers: bytes) -> None:
    """The line names the setting, and not the secret."""
    with pytest.raises(HandshakeError) as refused:
        run(*pair(followers, SECRET))
    assert str(refused.value) == WRONG
    assert "sixteen" not in repr(pair(followers, SECRET))


def test_a_proof_is_not_sent_back() -> None:
    """A leader that has no secret cannot answer with the follower's own proof, or nonce and proof."""
    follower, _ = pair(SECRET, SECRET)
    [own] = follower.begin()
    [proof] = follower.receive(own)
    with pytest.raises(HandshakeError, match="differ"):
        follower.receive(proof)


def test_a_secret_on_one_side_only_is_refused() -> None:
    """HELLO instead of a proof, or a challenge that is not expected."""
    hello = Hello("broker-a", "n2", "s", 0, EpochHistory(), 0, 0, 1)
    _, leader = pair(None, SECRET)
    with pytest.raises(HandshakeError) as missing:
        leader.receive(hello)
    assert str(missing.value) == MISSING
    follower, leader = pair(SECRET, None)
    with pytest.raises(HandshakeError) as unexpected:
        run(follower, leader)
    assert str(unexpected.value) == UNEXPECTED
    with pytest.raises(HandshakeError, match=f"refused: {UNEXPECTED}") as told:
        follower.receive(Refused(0, UNEXPECTED))
    assert not told.value.tells


@pytest.mark.parametrize("frame", [Beat(1, 1), Proof(bytes(32))])
def test_other_frames_end_the_handshake(frame: Beat | Proof) -> None:
    """Nothing else comes before HELLO."""
    _, leader = pair(SECRET, SECRET)
    with pytest.raises(HandshakeError, match="during the handshake"):
        leader.receive(frame)


def test_a_second_challenge_is_refused() -> None:
    """A peer gets one proof for one nonce."""
    follower, leader = pair(SECRET, SECRET)
    run(follower, leader)
    with pytest.raises(HandshakeError):
        leader.receive(Challenge(bytes(32)))
