"""The audit log: administrative requests with their final result, refusals, and a sample of the others."""

import asyncio
from collections.abc import Awaitable

import pytest

from skylarkmq.broker.access.audit import NAME_CHARACTERS, AuditLog, setting_keys
from skylarkmq.broker.access.audit_sinks import Entry
from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.config import AuditConfig
from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from tests.harness.peer import Peer

NOW_NS = 1_700_000_000_123_456_789
ADMIN = Caller("root", Proof.SIGNATURE, is_admin=True)
COMMON = {
    "time": "2023-11-14T22:13:20.123Z",
    "account": "root",
    "proof": "signature",
    "address": "127.0.0.9:4321",
}


class MemorySink:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        self.entries.append(dict(entry))

    def close(self) -> None:
        pass


class Accounts:
    """An access control that permits everything to `root`, except what the topic `Forbidden` needs."""

    checks_data = True

    def check(self, _source: RequestSource, command: RemotingCommand, _requirement: Requirement) -> Caller:
        if command.ext_fields().get("topic") == "Forbidden":
            raise RequestError(ResponseCode.NO_PERMISSION, "no\nway")
        return ADMIN


class Audited:
    """A dispatcher behind a gate with an audit log."""

    def __init__(self, one_in: int = 0) -> None:
        self.sink = MemorySink()
        self.audit = AuditLog(AuditConfig(audit_sample_one_in=one_in), lambda: NOW_NS, self.sink)
        self.audit.start()
        self.dispatcher = Dispatcher()
        self.dispatcher.guard = Gate(Accounts(), observer=self.audit)
        self.wait = asyncio.Event()
        self.pool = Pool("admin", 100)
        self.dispatcher.register([RequestCode.UPDATE_AND_CREATE_TOPIC], self._create, self.pool)
        others = [RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_BROKER_CONFIG]
        others += [RequestCode.GET_MAX_OFFSET, RequestCode.SEND_MESSAGE_V2]
        accounts = [RequestCode.UPDATE_AND_CREATE_ACL_CONFIG]
        self.dispatcher.register(accounts, self._refuse_account, self.pool)
        self.dispatcher.register(others, lambda *_: RemotingCommand.response(), self.pool)
        self.peer = Peer(self.dispatcher)

    def _refuse_account(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        keys = f"secretKey={command.ext_fields()['secretKey']}"
        raise RequestError(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, f"{keys} length should longer than 6")

    def _create(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand | None]:
        name = command.ext_fields()["topic"]

        async def created() -> RemotingCommand:
            await self.wait.wait()
            if name == "Bad":
                raise RequestError(ResponseCode.INVALID_PARAMETER, "bad name")
            return RemotingCommand.response(remark="done")

        return created()

    async def entries(self) -> list[Entry]:
        await self.audit.stop()
        return self.sink.entries


def request(code: RequestCode, body: bytes = b"", **ext: str) -> RemotingCommand:
    command = RemotingCommand.request(code, body=body)
    command.ext = dict(ext)
    return command


async def test_an_administrative_request_is_recorded_with_its_final_result() -> None:
    """The entry is written with the response, which comes after an await; errors are results as well."""
    audited = Audited()
    audited.peer.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T"))
    audited.peer.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="Bad"))
    assert audited.audit.statistics().written == audited.audit.statistics().waiting == 0
    audited.wait.set()
    await asyncio.gather(*audited.dispatcher._tasks)
    admin = COMMON | {"event": "admin", "code": 17, "request": "UPDATE_AND_CREATE_TOPIC"}
    assert await audited.entries() == [
        admin | {"topic": "T", "result": "SUCCESS", "remark": "done"},
        admin | {"topic": "Bad", "result": "INVALID_PARAMETER", "remark": "bad name"},
    ]


async def test_a_refusal_is_recorded_with_the_account_that_it_claims() -> None:
    """No request is refused without an entry; there is none with another result."""
    audited = Audited()
    command = request(RequestCode.GET_MAX_OFFSET, topic="Forbidden", AccessKey="mallory", Signature="s3cret")
    assert audited.peer.call(command).code == ResponseCode.NO_PERMISSION
    [entry] = await audited.entries()
    assert entry == COMMON | {
        "event": "refused",
        "account": "",
        "proof": "none",
        "code": 30,
        "request": "GET_MAX_OFFSET",
        "topic": "Forbidden",
        "claimedAccount": "mallory",
        "result": "NO_PERMISSION",
        "remark": "no\nway",
    }


async def test_other_requests_are_recorded_only_as_a_sample() -> None:
    """One in three, from the third on; by default none."""
    for one_in, count in ((0, 0), (3, 3), (1, 10)):
        audited = Audited(one_in)
        for _ in range(10):
            audited.peer.call(request(RequestCode.SEND_MESSAGE_V2, a="G", b="T"))
        entries = await audited.entries()
        expected = COMMON | {"event": "request", "code": 310, "request": "SEND_MESSAGE_V2", "group": "G", "topic": "T"}
        assert entries == [expected] * count


async def test_bodies_contribute_names_and_no_values() -> None:
    """A group's name, and the keys of changed settings."""
    audited = Audited()
    group = SubscriptionGroupConfig(group_name="G").encode()
    audited.peer.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group))
    audited.peer.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"{"))
    audited.peer.call(request(RequestCode.UPDATE_BROKER_CONFIG, b"a=1\nsecret=\\\n  hidden=1\n{}\nb: 2"))
    entries = await audited.entries()
    assert [entry.get("group") for entry in entries] == ["G", None, None]
    assert entries[2]["settings"] == "a,secret,b"
    assert "hidden" not in str(entries)


async def test_a_refused_account_leaves_no_secret_key() -> None:
    """RocketMQ's remark contains the key of the request; the entry has the code only."""
    audited = Audited()
    audited.peer.call(request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="new-account", secretKey="hidden"))
    [entry] = await audited.entries()
    assert (entry["result"], entry["user"]) == ("UPDATE_AND_CREATE_ACL_CONFIG_FAILED", "new-account")
    assert "hidden" not in str(entry)


@pytest.mark.parametrize(
    ("text", "keys"), [("a=1", ["a"]), ("a", ["a"]), ("# a=1", []), ("a\\\nb=1\nc=2", ["c"]), ('{"x":"y"}', [])]
)
def test_setting_keys_are_keys_only(text: str, keys: list[str]) -> None:
    """Lines that continue a value are no keys."""
    assert setting_keys(text) == keys


async def test_long_names_are_cut() -> None:
    """An entry has a bounded size."""
    audited = Audited(1)
    audited.peer.call(request(RequestCode.GET_MAX_OFFSET, topic="x" * 10_000))
    [entry] = await audited.entries()
    assert entry["topic"] == "x" * NAME_CHARACTERS


async def test_a_request_without_a_response_is_recorded_at_the_stop() -> None:
    """The process stops before the result is known."""
    audited = Audited()
    audited.peer.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T"))
    [entry] = await audited.entries()
    assert entry == COMMON | {"event": "admin", "code": 17, "request": "UPDATE_AND_CREATE_TOPIC", "topic": "T"}
    audited.wait.set()
    await asyncio.gather(*audited.dispatcher._tasks)
