"""Attacks on access control, each against a running daemon of both generations, with the required outcome.

All tests of a generation share a daemon. After each attack, normal clients send and read, and the state is unchanged.
After the last one `Arena.finish` checks the files, the store, memory and the log, which contains no secret.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.access.auth.requests import FAILED
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.serialize import encode_command
from tests.attack import accounts
from tests.attack.accounts import ADMINISTRATOR, GENERATIONS, NORMAL, OTHER_TOPIC, OWN_GROUP, OWN_TOPIC, WITHOUT_RIGHTS
from tests.attack.arena import Arena
from tests.attack.callers import ACCESS_KEY, SIGNATURE
from tests.attack.normal_clients import (
    BODY_MARK,
    BROKER_NAME,
    COMMIT,
    KEPT,
    OFFSETS,
    Ledger,
    pull_header,
    read_queue,
    send_header,
)
from tests.attack.state import changed, read_state
from tests.attack.test_resource_attacks import CPU_LIMIT_S, longest_cpu_s
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import Credentials, RawClient, RawResponse, frame, texts

pytestmark = pytest.mark.crash

MEGABYTE: Final = 1 << 20
ACL_CODES: Final = (50, 51, 52, 53)
USER_CODES: Final = tuple(range(3001, 3011))
GARBAGE: Final = (
    b"", b"null", b"[]", b"{", b"\xff" * 100, b'"x"', b"0", b"[" * 100_000, b'{"a":' * 50_000, b"{}", b"[{}]",
    b'{"username":{}}', b'{"policies":null}', b'{"policies":[null]}', b'{"policies":[{"entries":[null]}]}',
    b'{"username":"administrator","password":"x","userType":9}', b'{"subject":"User:","policies":{}}',
    b'{"subject":"User:othertopic","policies":[{"policyType":"Custom","entries":[{"resource":"*","actions":7}]}]}',
)  # fmt: skip


class Fortress:
    """A daemon with access control, and a normal client with a message in `KEPT`."""

    def __init__(self, directory: Path, access: str) -> None:
        self.generation = GENERATIONS[access]
        self.conf = directory / "watched" / "conf"
        settings = self.generation.settings(directory / "watched")
        self.arena = Arena(directory, account=NORMAL, brokerName=BROKER_NAME, **settings)
        self.ledger = Ledger(KEPT)

    def __repr__(self) -> str:
        return f"<Fortress {self.generation.name}>"

    def send_first(self) -> None:
        """Create the accounts, and send a message with the marked body."""
        self.generation.prepare(self.client(ADMINISTRATOR))
        sent = self.client(NORMAL).call(RequestCode.SEND_MESSAGE_V2, send_header(KEPT), BODY_MARK)
        assert sent.code == ResponseCode.SUCCESS, sent
        self.ledger.note(BODY_MARK, sent.ext)

    def client(self, account: Credentials) -> RawClient:
        """Return a connection to the broker whose requests are signed."""
        return self.arena.client(account=account)

    def state(self) -> Any:
        """Return what attackers must not change."""
        namesrv = self.arena.namesrv_client(account=ADMINISTRATOR)
        return read_state(self.client(ADMINISTRATOR), namesrv, self.generation.name)

    def exchange(self, data: bytes) -> tuple[int, str] | None:
        """Send bytes on a connection of their own; return code and remark of the response, None if it is closed."""
        with socket.create_connection((LOOPBACK, self.arena.broker_port), 10.0) as peer:
            peer.sendall(data)
            stream = peer.makefile("rb")
            head = stream.read(8)
            if len(head) < 8:
                return None
            assert head[4] == 0, "a JSON header"
            header = json.loads(stream.read(int.from_bytes(head[5:8], "big")))
            return header["code"], header.get("remark") or ""

    def is_refusal(self, response: RawResponse) -> bool:
        """Return whether a response is RocketMQ's refusal, without content."""
        return self.generation.is_refusal(response.code, response.remark or "") and not (response.ext or response.body)


@pytest.fixture(scope="module", params=list(GENERATIONS))
def fortress_of_module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    fortress = Fortress(tmp_path_factory.mktemp("fortress"), request.param)
    with fortress.arena:
        fortress.send_first()
        yield fortress
        assert fortress.ledger.missing(fortress.client(NORMAL)) == []
        fortress.arena.finish()
    output = fortress.arena.output.read_text(errors="replace")
    assert [secret for secret in accounts.SECRET_KEYS if secret in output] == []
    assert "\x1b" not in output


@pytest.fixture
def fortress(fortress_of_module: Fortress) -> Iterator[Fortress]:
    """The daemon of this generation; afterward its state is as before, and normal clients are served."""
    before = fortress_of_module.state()
    yield fortress_of_module
    assert list(changed(before, fortress_of_module.state())) == []
    fortress_of_module.ledger.send(fortress_of_module.client(NORMAL), 2)


def send_fields(topic: str = KEPT, **more: object) -> dict[str, str]:
    return texts(send_header(topic) | more)


def json_frame(fields: object, body: bytes = b"body", code: int = RequestCode.SEND_MESSAGE_V2) -> bytes:
    return frame({"code": code, "opaque": 1, "extFields": fields}, body)


RIGHT: Final = ADMINISTRATOR.signed({"a": "1"}, b"")[SIGNATURE]
CREDENTIALS: Final[dict[str, dict[str, Any]]] = {
    "no key": {},
    "no signature": {ACCESS_KEY: ADMINISTRATOR.access_key},
    "empty": {ACCESS_KEY: "", SIGNATURE: ""},
    "key of 1 MB": {ACCESS_KEY: "k" * MEGABYTE, SIGNATURE: RIGHT},
    "signature of 1 MB": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: "A" * MEGABYTE},
    "key not ASCII": {ACCESS_KEY: "Ä\u202e\u2028\U0001f600", SIGNATURE: RIGHT},
    "control characters": {ACCESS_KEY: "a\x1b[2J\n2026-01-01 ERROR forged\0", SIGNATURE: RIGHT},
    "surrogate in the key": {ACCESS_KEY: "\ud800", SIGNATURE: RIGHT},
    "surrogate in the signature": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: "\udfff" * 28},
    "surrogate in a field": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: RIGHT, "i": "\ud800"},
    "not base64": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: "{not base64}"},
    "numbers": {ACCESS_KEY: 1e3, SIGNATURE: 7},
    "containers": {ACCESS_KEY: ["administrator"], SIGNATURE: {"a": [None]}},
    "nulls": {ACCESS_KEY: None, SIGNATURE: None},
    "security token": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: RIGHT, "SecurityToken": "administrator"},
    "many fields": {ACCESS_KEY: ADMINISTRATOR.access_key, SIGNATURE: RIGHT} | {f"f{n}": "" for n in range(90_000)},
    "format": {ACCESS_KEY: "%s%n{}{0}", SIGNATURE: "%s"},
}


@pytest.mark.parametrize("name", list(CREDENTIALS))
def test_malformed_credentials_are_refused(fortress: Fortress, name: str) -> None:
    """Credentials of any form are refused like a wrong signature, and delay no other client. A header that is too large
    closes its connection."""
    responses: list[tuple[int, str] | None] = []
    data = json_frame({**send_fields(), **CREDENTIALS[name]})
    longest_s = longest_cpu_s(fortress.arena, lambda: responses.append(fortress.exchange(data)), KEPT, BODY_MARK)
    assert longest_s < CPU_LIMIT_S
    is_too_large = len(data) > MEGABYTE
    assert all(is_too_large if one is None else fortress.generation.is_refusal(*one) for one in responses), responses


def test_a_field_twice_gives_no_rights(fortress: Fortress) -> None:
    """If a name occurs twice in a header, the topic that is checked is the topic that is used."""
    for own_first in (False, True):
        for name in ('"b"', '"\\u0062"'):
            own = OTHER_TOPIC.signed(send_fields(OWN_TOPIC), b"foreign")
            twice = f'{name}: "{KEPT}"'
            fields = json.dumps(own)[1:-1]
            ext = f"{fields}, {twice}" if own_first else f"{twice}, {fields}"
            head = f'{{"code":310,"flag":0,"language":"JAVA","version":479,"opaque":1,"extFields":{{{ext}}}}}'.encode()
            fortress.exchange((11 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + b"foreign")
    assert b"foreign" not in [bytes(record.body) for record in read_queue(fortress.client(NORMAL), KEPT)]


def test_a_signature_is_valid_for_its_own_request_only(fortress: Fortress) -> None:
    """A signature of another body, or of other fields, is refused; that of the request is accepted in every dialect."""
    fields = NORMAL.signed(send_fields(), b"right")
    for changed_fields, body in ((fields, b"wrong"), (fields | {"e": "1"}, b"right"), (fields | {"z": "1"}, b"right")):
        response = fortress.exchange(json_frame(changed_fields, body))
        assert response is not None
        assert fortress.generation.is_refusal(*response), response
    for dialect in (ROCKETMQ, MSGPACK):
        command = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=1, version=479)
        command.ext, command.body, command.dialect = fields, b"wrong", dialect
        with socket.create_connection((LOOPBACK, fortress.arena.broker_port), 10.0) as peer:
            peer.sendall(encode_command(command))
            assert b"ignature" in peer.recv(1 << 16)


def test_no_account_may_do_another_accounts_work(fortress: Fortress) -> None:
    """Requests of every kind that name normal topics and groups are refused, to all callers without the right."""
    queue = {"topic": KEPT, "queueId": 0}
    offset = {"consumerGroup": OFFSETS, **queue, "commitOffset": 1 << 20}
    locks = {"consumerGroup": OFFSETS, "clientId": "c", "mqSet": [{**queue, "brokerName": BROKER_NAME}]}
    requests: tuple[tuple[int, dict[str, Any], bytes], ...] = (
        (RequestCode.SEND_MESSAGE_V2, send_header(KEPT), b"foreign"),
        (RequestCode.SEND_BATCH_MESSAGE, send_header(KEPT, m="true"), b"foreign"),
        (RequestCode.PULL_MESSAGE, pull_header(KEPT, 0), b""),
        (RequestCode.PULL_MESSAGE, pull_header(OWN_TOPIC, 0, consumerGroup=OFFSETS), b""),
        (RequestCode.LITE_PULL_MESSAGE, pull_header(KEPT, 0), b""),
        (RequestCode.UPDATE_CONSUMER_OFFSET, offset, b""),
        (RequestCode.LOCK_BATCH_MQ, {}, json.dumps(locks).encode()),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": OFFSETS}, b""),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": OFFSETS, "delayLevel": 1}, b""),
        (
            RequestCode.QUERY_MESSAGE,
            {"topic": KEPT, "key": "k", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 9},
            b"",
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": KEPT}, b""),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": OFFSETS}, b""),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=0"),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": KEPT, "group": OFFSETS, "timestamp": 0, "isForce": True},
            b"",
        ),
        (RequestCode.CLEAN_UNUSED_TOPIC, {}, b""),
    )
    for account in (WITHOUT_RIGHTS, OTHER_TOPIC):
        client = fortress.client(account)
        for code, header, body in requests:
            response = client.call(code, header, body)
            assert fortress.is_refusal(response), (account.access_key, code, response)


def test_a_right_to_one_group_reads_no_message_of_another_topic(fortress: Fortress) -> None:
    """A negative acknowledgment of a message that the account may not read does not copy it to its retry topic."""
    client = fortress.client(OTHER_TOPIC)
    back = {"offset": 0, "group": OWN_GROUP, "delayLevel": 1, "originTopic": OWN_TOPIC, "maxReconsumeTimes": 16}
    client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    retry = pull_header(f"%RETRY%{OWN_GROUP}", 0, consumerGroup=OWN_GROUP)
    end_s = time.monotonic() + 2.5
    while time.monotonic() < end_s:
        response = client.call(RequestCode.PULL_MESSAGE, retry)
        assert BODY_MARK not in response.body
        time.sleep(0.2)


def test_a_right_to_one_group_sends_to_no_retry_topic_of_another(fortress: Fortress) -> None:
    """A send to the retry topic of a normal group is refused, whatever producer group it names."""
    client = fortress.client(OTHER_TOPIC)
    for code, header in (
        (RequestCode.SEND_MESSAGE_V2, send_header(f"%RETRY%{OFFSETS}", a=OWN_GROUP)),
        (RequestCode.SEND_BATCH_MESSAGE, send_header(f"%RETRY%{OFFSETS}", a=OWN_GROUP, m="true")),
    ):
        response = client.call(code, header, b"foreign")
        assert fortress.is_refusal(response), response


def test_a_transaction_is_decided_by_its_own_account_only(fortress: Fortress) -> None:
    """Another account that names the half message and its group decides nothing."""
    normal = fortress.client(NORMAL)
    half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U1"}
    sent = normal.call(RequestCode.SEND_MESSAGE_V2, send_header(KEPT, half, f=4), BODY_MARK + b", half")
    assert sent.code == ResponseCode.SUCCESS, sent
    decision = {
        "producerGroup": "P", "tranStateTableOffset": sent.ext["queueOffset"], "msgId": "U1",
        "commitLogOffset": int(sent.ext["msgId"][16:], 16), "fromTransactionCheck": "false", "transactionId": "U1",
    }  # fmt: skip
    rollback = decision | {"commitOrRollback": 12}
    for account in (WITHOUT_RIGHTS, OTHER_TOPIC):
        fortress.client(account).call(RequestCode.END_TRANSACTION, rollback)
        fortress.client(account).call(RequestCode.END_TRANSACTION, rollback | {"topic": OWN_TOPIC})
    normal.call(RequestCode.END_TRANSACTION, decision | {"commitOrRollback": COMMIT})
    assert BODY_MARK + b", half" in [bytes(record.body) for record in read_queue(normal, KEPT)]


@pytest.mark.parametrize("account", [None, accounts.UNKNOWN, WITHOUT_RIGHTS, OTHER_TOPIC], ids=str)
def test_management_requests_with_garbage_are_refused(fortress: Fortress, account: Credentials | None) -> None:
    """Requests that manage accounts are refused before their bodies are read. Every account may read the version of
    the files of 4.9 (52). There are no users in 4.9: those requests fail."""
    may_read = (52,) if account in (WITHOUT_RIGHTS, OTHER_TOPIC) else ()
    for code in {*ACL_CODES, *USER_CODES}.difference(may_read):
        for body in GARBAGE:
            fields: dict[str, str] = {"username": "attacker", "subject": "User:attacker", "accessKey": "attacker"}
            if account is not None:
                fields = account.signed(fields, body)
            response = fortress.exchange(json_frame(fields, body, code))
            assert response is not None
            assert response[0] != ResponseCode.SUCCESS, (code, body[:50])
            is_unserved = response[1] == FAILED or response[0] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert is_unserved or fortress.generation.is_refusal(*response), (code, body[:50], response)


def test_management_requests_of_the_administrator_with_garbage_change_nothing(fortress: Fortress) -> None:
    """Garbage from the administrator gets an error without a traceback, and delays no other client."""
    client = fortress.client(ADMINISTRATOR)
    for code in (50, 51, 53, *USER_CODES):
        for body in GARBAGE:
            begun_s = fortress.arena.cpu_s()
            response = client.call(code, {"username": "", "subject": "", "accessKey": ""}, body)
            assert fortress.arena.cpu_s() - begun_s < CPU_LIMIT_S
            assert "Traceback" not in (response.remark or "")


def test_names_of_any_length_use_bounded_memory(fortress: Fortress) -> None:
    """Decisions about long names are not kept."""
    before = fortress.arena.rss_bytes()
    client = fortress.client(WITHOUT_RIGHTS)
    for number in range(400):
        topic = f"{number}" + "t" * 100_000
        client.call(RequestCode.PULL_MESSAGE, pull_header(topic, 0, consumerGroup="g" * 100_000))
    assert fortress.arena.rss_bytes() - before < 40 << 20


def test_a_heartbeat_with_many_groups_does_not_block_the_loop(fortress: Fortress) -> None:
    """A heartbeat of an account without rights to any of its 20,000 groups is refused in time."""
    consumers = [{"groupName": f"g{n}", "subscriptionDataSet": []} for n in range(20_000)]
    body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers}).encode()
    client, responses = fortress.client(WITHOUT_RIGHTS), list[RawResponse]()
    longest_s = longest_cpu_s(
        fortress.arena, lambda: responses.append(client.call(RequestCode.HEART_BEAT, body=body)), KEPT, BODY_MARK
    )
    assert fortress.is_refusal(responses[0]), responses
    assert longest_s < CPU_LIMIT_S


def test_unknown_accounts_and_wrong_secrets_get_the_same_response(fortress: Fortress) -> None:
    """The responses to an unknown account and to a wrong secret differ in RocketMQ's text only."""
    header = send_header(KEPT)
    responses = [
        fortress.client(account).call(RequestCode.SEND_MESSAGE_V2, header, b"x")
        for account in (accounts.UNKNOWN, Credentials(NORMAL.access_key, "wrong secret"))
    ]
    assert all(fortress.is_refusal(response) for response in responses), responses
    assert responses[0].code == responses[1].code


# ------------------------------------------------------------------------------------------------ absurd policies (5.3)


PATTERNS: Final = (
    "*" * 10_000,
        "Topic:b" + "*" * 10_000,
        "Topic:" + "b*a*" * 5_000,
        "Topic:(a+)+$",
        "Topic:[",
        "Topic:\\",
        "Topic:",
    ":",
        "",
        "Cluster",
        "Topic:a\0b",
        "Topic:\ud800",
        "Topic:" + "x" * 200_000,
        "Nonsense:*",
        "Topic:Topic:*",
        "**",
        "Group:*",
        "Cluster:*",
)  # fmt: skip
SOURCES: Final = (
    "",
        "*",
        "256.1.1.1",
        "1.2.3.4/33",
        "1.2.3.4/-1",
        "0.0.0.0/0/0",
        "::1/129",
        "fe80::1%eth0",
        "1.2.3.4-",
        "9" * 9_000,
    "127.0.0.1\n", "\u0661.1.1.1", "0x7f.1", "127.1", "1.2.3.{4,5", "1.*.*", "[::1]", "1.2.3.4/1.2.3.4",
)  # fmt: skip


@pytest.mark.parametrize("fortress_of_module", ["5.3"], indirect=True)
def test_absurd_policies_delay_nothing_and_give_no_rights(fortress: Fortress) -> None:
    """Policies with any pattern or source get a response in time; they give no right to a normal topic."""
    admin = fortress.client(ADMINISTRATOR)
    subject = "User:withoutrights"
    attacker = fortress.client(WITHOUT_RIGHTS)
    for resource, sources in [*((pattern, []) for pattern in PATTERNS), *((f"Topic:{KEPT}", [s]) for s in SOURCES)]:
        kind, _, name = resource.partition(":")
        prefix, star, _ = name.partition("*")
        is_allowed = kind == "Topic" and bool(star) and ("a" * 100).startswith(prefix)
        entry = {"resource": resource, "actions": ["Pub"], "sourceIps": sources, "decision": "Allow"}
        acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
        begun_s = fortress.arena.cpu_s()
        admin.call(3006, {"subject": subject}, json.dumps(acl).encode())
        response = attacker.call(RequestCode.SEND_MESSAGE_V2, send_header(f"{KEPT}" if sources else "a" * 100), b"x")
        assert fortress.arena.cpu_s() - begun_s < CPU_LIMIT_S, resource[:50]
        assert is_allowed or fortress.is_refusal(response), (resource[:50], sources, response)
        admin.call(3008, {"subject": subject})
    admin.call(3008, {"subject": subject})


# --------------------------------------------------------------------------------------------------- broken files (4.9)


def _bomb() -> str:
    """Return aliases that would expand to 10^9 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join([*lines, "accounts: *a8"])


FILES: Final[dict[str, Callable[[], bytes]]] = {
    "aliases": lambda: _bomb().encode(),
    "aliases of white addresses": lambda: _bomb().replace("accounts:", "globalWhiteRemoteAddresses:").encode(),
    "nesting": lambda: b"accounts: " + b"[" * 100_000,
    "object": lambda: b"accounts: !!python/object/apply:os.system ['touch /tmp/attacked']",
    "size": lambda: b"x: " + b"y" * (4 << 20),
    "not UTF-8": lambda: b"accounts: \xff\xfe",
    "not a mapping": lambda: b"[1, 2]",
    "types": lambda: b"accounts: [{accessKey: [a], secretKey: {b: c}, admin: 7, topicPerms: 9}]",
    "self-reference": lambda: b"accounts: &a [*a]",
    "white addresses": lambda: b"globalWhiteRemoteAddresses: ['1.2.3.{" + b"1," * 100_000 + b"}', '*.*', '9-0.1.1.1']",
    "merge": lambda: b"accounts: &a {<<: *a}",
}


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("fortress_of_module", ["4.9"], indirect=True)
def test_a_broken_file_leaves_the_accounts_as_they_were(fortress: Fortress, name: str) -> None:
    """A file that is not a list of accounts is logged; the accounts stay, memory is bounded, the loop is not
    blocked."""
    file = fortress.conf / "plain_acl.yml"
    right, status = file.read_bytes(), file.stat()
    try:
        with reloaded(fortress):
            file.write_bytes(FILES[name]())
        assert fortress.is_refusal(fortress.client(WITHOUT_RIGHTS).call(310, send_header(KEPT), b"x"))
    finally:
        with reloaded(fortress):
            file.write_bytes(right)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@contextmanager
def reloaded(fortress: Fortress) -> Iterator[None]:
    """Wait until the daemon has logged that it read the changed file; meanwhile the normal client sends."""
    client = fortress.client(NORMAL)
    logged = len(fortress.arena.daemon.output)
    yield
    longest_s, end_s = 0.0, time.monotonic() + PROCESS_LIMIT_S
    while "plain_acl.yml" not in fortress.arena.daemon.output[logged:]:
        assert time.monotonic() < end_s, "the change was not noticed"
        begun_s = fortress.arena.cpu_s()
        sent = client.call(RequestCode.SEND_MESSAGE_V2, send_header(KEPT), BODY_MARK)
        longest_s = max(longest_s, fortress.arena.cpu_s() - begun_s)
        assert sent.code == ResponseCode.SUCCESS, sent
        fortress.ledger.note(BODY_MARK, sent.ext)
        fortress.arena.rss_bytes()
        time.sleep(0.02)
    assert longest_s < CPU_LIMIT_S
