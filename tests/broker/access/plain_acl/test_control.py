"""Decisions about requests: the order of the checks, the table of codes, and RocketMQ's remarks.

The expected values follow from RocketMQ 4.9.8: PlainAccessValidator, PlainPermissionManager, Permission.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from skylarkmq.broker.access import decision_cache
from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.gate import MAX_RUN, Gate
from skylarkmq.broker.access.plain_acl import control as control_module
from skylarkmq.broker.access.plain_acl.control import MOST_ORDERED_CHARACTERS, PlainAclControl
from skylarkmq.broker.access.plain_acl.files import AclFiles, Rules
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.access.requests.table import BROKER_REQUIREMENTS, requirement_of
from skylarkmq.broker.access.security_config import MappedSubject
from skylarkmq.broker.remoting.dispatch import Run
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.serialize import binary_entry, encode_command
from skylarkmq.protocol.signature import SigningKey, signed_parts
from skylarkmq.protocol.stream import CommandDecoder

SECRET: Final = "a-secret"
STRICT: Final = pytest.mark.parametrize("strict", [False, True], ids=["4.9", "strict"])
CERTIFICATES: Final = CertificateAccounts((MappedSubject("CN=orders", "orders-pub"), MappedSubject("CN=gone", "gone")))
READS: Final = frozenset((Action.GET, Action.LIST))
ACCOUNTS: Final[list[dict[str, object]]] = [
    {"accessKey": "nothing"},
    {"accessKey": "orders-pub", "topicPerms": ["orders=PUB"]},
    {"accessKey": "orders-sub", "topicPerms": ["orders=SUB"], "groupPerms": ["G=SUB"]},
    {"accessKey": "sub-default", "defaultTopicPerm": "SUB", "defaultGroupPerm": "SUB"},
    {"accessKey": "pub-default", "defaultTopicPerm": "PUB"},
    {"accessKey": "an-admin", "admin": True},
    {"accessKey": "admin-with-list", "admin": True, "topicPerms": ["orders=PUB"]},
    {"accessKey": "at-home", "whiteRemoteAddress": "10.0.0.*"},
]


class Peer(msgspec.Struct):
    """The part of a connection that access control reads."""

    host: str = "192.0.2.1"
    certificate_subject: str | None = None


class Fixture:
    """A control over files in a directory."""

    def __init__(self, directory: Path, *, strict: bool, **members: object) -> None:
        accounts = [{"secretKey": SECRET} | each for each in ACCOUNTS]
        self.path = directory / "plain_acl.yml"
        self.path.write_text(json.dumps({"accounts": accounts, **members}))  # which is YAML, too
        files = AclFiles(directory, lambda: 0)
        files.open()
        self.files = ReloadedFiles(files)
        self.control = PlainAclControl(self.files, CERTIFICATES, is_strict=strict)

    def check(self, command: RemotingCommand, host: str = "192.0.2.1", subject: str | None = None) -> Caller:
        peer: Any = Peer(host, subject)
        return self.control.check(peer, command, requirement_of(command.code))

    def remark(self, command: RemotingCommand, host: str = "192.0.2.1", subject: str | None = None) -> str | None:
        """Return the text of the refusal; None if the request is permitted."""
        try:
            self.check(command, host, subject)
        except RequestError as error:
            return text_of(error)
        return None


def text_of(error: RequestError) -> str:
    """Return RocketMQ's text in a refusal."""
    start, end = "org.apache.rocketmq.acl.common.AclException: ", ", skylarkmq.broker.access.plain_acl.control"
    assert error.code is ResponseCode.SYSTEM_ERROR
    assert error.remark.startswith(start)
    assert error.remark.endswith(end)
    return error.remark.removeprefix(start).removesuffix(end)


def signed(
    code: int, account: str, ext: Mapping[str, str] | None = None, body: bytes = b"", secret: str = SECRET
) -> RemotingCommand:
    fields = dict(ext or {}) | {"AccessKey": account}
    content = "".join(fields[name] for name in sorted(fields)).encode()
    return RemotingCommand(code=code, ext=fields | {"Signature": SigningKey(secret).sign(content, body)}, body=body)


SEND, SEND_V2, PULL = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
ORDERS: Final = {"b": "orders", "a": "PG"}


# --- the order of the checks ------------------------------------------------------------------------------------------


@STRICT
def test_a_global_white_address_permits_everything(tmp_path: Path, strict: bool) -> None:
    """Without an account, and with a wrong one."""
    it = Fixture(tmp_path, strict=strict, globalWhiteRemoteAddresses=["192.0.2.*"])
    white = Caller("", Proof.WHITE_ADDRESS, is_admin=True)
    assert it.check(RemotingCommand(code=RequestCode.DELETE_TOPIC_IN_BROKER)) == white
    assert it.check(signed(SEND_V2, "unknown-account", ORDERS)) == white
    assert it.remark(RemotingCommand(code=SEND_V2), "192.0.3.1") == "No accessKey is configured"


@STRICT
def test_a_request_without_an_account_is_refused(tmp_path: Path, strict: bool) -> None:
    """Also one that needs no permission; an empty AccessKey is an unknown account."""
    it = Fixture(tmp_path, strict=strict)
    for code in BROKER_REQUIREMENTS:
        assert it.remark(RemotingCommand(code=code)) == "No accessKey is configured"
    assert it.remark(signed(SEND_V2, "", ORDERS)) == "No acl config for "
    assert it.remark(signed(SEND_V2, "unknown", ORDERS)) == "No acl config for unknown"


@STRICT
def test_the_white_address_of_an_account_permits_everything(tmp_path: Path, strict: bool) -> None:
    """Without a signature, and without permissions."""
    it = Fixture(tmp_path, strict=strict)
    command = RemotingCommand(code=RequestCode.UPDATE_BROKER_CONFIG, ext={"AccessKey": "at-home"})
    assert it.check(command, "10.0.0.7") == Caller("at-home", Proof.WHITE_ADDRESS, is_admin=True)
    assert it.remark(command) == "Check signature failed for accessKey=at-home"


@STRICT
def test_a_wrong_signature_is_refused(tmp_path: Path, strict: bool) -> None:
    """With another secret, another body, another field, or none."""
    it = Fixture(tmp_path, strict=strict)
    failed = "Check signature failed for accessKey=orders-pub"
    assert it.check(signed(SEND_V2, "orders-pub", ORDERS, b"body")) == Caller("orders-pub", Proof.SIGNATURE)
    assert it.remark(signed(SEND_V2, "orders-pub", ORDERS, secret="another")) == failed
    changed = signed(SEND_V2, "orders-pub", ORDERS, b"body")
    changed.body = b"b0dy"
    assert it.remark(changed) == failed
    changed = signed(SEND_V2, "orders-pub", ORDERS)
    changed.ext = dict(changed.ext or {}) | {"c": "more"}
    assert it.remark(changed) == failed
    assert it.remark(RemotingCommand(code=SEND_V2, ext={"AccessKey": "orders-pub"})) == failed


def test_an_unknown_account_takes_the_steps_of_a_wrong_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same functions run, with the same amount of data: the times do not tell whether an account exists."""
    it = Fixture(tmp_path, strict=True)
    steps: list[tuple[str, int]] = []

    def recorded(name: str, of: Any, size: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            steps.append((name, size(*arguments)))
            return of(*arguments, **named)

        return call

    monkeypatch.setattr(control_module, "signed_parts", recorded("signed_parts", signed_parts, lambda _command: 0))
    has_signed = SigningKey.has_signed
    monkeypatch.setattr(
        SigningKey,
        "has_signed",
        recorded("has_signed", has_signed, lambda _key, parts, body: len(parts.content) + len(body)),
    )
    taken = []
    for account in ("orders-pub", "orders-xyz"):
        steps.clear()
        assert it.remark(signed(SEND_V2, account, ORDERS, b"body", "another"))
        taken.append(list(steps))
    assert taken[0] == taken[1]
    assert [name for name, _ in taken[0]] == ["signed_parts", "has_signed"]


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
def test_a_send_like_the_last_permitted_one_is_checked_like_the_first(tmp_path: Path, dialect: int) -> None:
    """Only its signature is verified again, and always; another topic, account, code or host, and changed rules, are
    checked as a whole."""
    it = Fixture(tmp_path, strict=True)
    send = {"a": "PG", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\x01A\x02"}

    def decoded(account: str, topic: str = "orders", secret: str = SECRET) -> RemotingCommand:
        command = signed(SEND_V2, account, send | {"b": topic}, b"body", secret)
        command.dialect = dialect
        (fast,) = CommandDecoder().feed_commands(memoryview(encode_command(command)))
        assert fast.send_header is not None
        return fast

    failed = "Check signature failed for accessKey=orders-pub"
    for _ in range(3):
        assert it.check(decoded("orders-pub")) == Caller("orders-pub", Proof.SIGNATURE)
        assert it.remark(decoded("orders-pub", secret="another")) == failed
        assert it.remark(decoded("orders-pub", "others")) == "No default permission for topic:others"
        assert it.remark(decoded("nothing")) == NO_ORDERS
        assert it.remark(decoded("unknown")) == "No acl config for unknown"
        assert it.check(decoded("at-home"), "10.0.0.1") == Caller("at-home", Proof.WHITE_ADDRESS, is_admin=True)
        assert it.check(decoded("pub-default", "others")) == Caller("pub-default", Proof.SIGNATURE)
    assert it.remark(decoded("orders-pub")) is None
    accounts = [{"accessKey": "orders-pub", "secretKey": SECRET}]
    it.path.write_text(yaml.safe_dump({"accounts": accounts, "globalWhiteRemoteAddresses": ["192.0.3.*"]}))
    files = AclFiles(tmp_path, lambda: 0)
    files.open()
    it.files.rules = files.rules
    assert it.remark(decoded("orders-pub")) == NO_ORDERS
    assert it.check(decoded("orders-pub", secret="another"), "192.0.3.1").proof is Proof.WHITE_ADDRESS


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
def test_a_run_is_admitted_up_to_the_first_send_that_is_not_permitted(tmp_path: Path, dialect: int) -> None:
    """The same holds for sends like the last permitted one, verified in one step, and after changed rules."""
    it = Fixture(tmp_path, strict=True)
    gate = Gate(it.control)
    send = {"a": "PG", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\x01A\x02"}
    peer: Any = Peer()

    def run(*sends: tuple[str, str, str]) -> list[RemotingCommand]:
        frames = b""
        for account, topic, secret in sends:
            command = signed(SEND_V2, account, send | {"b": topic}, b"body", secret)
            command.dialect = dialect
            frames += encode_command(command)
        return commands_in(frames)

    def admitted(commands: list[RemotingCommand]) -> list[tuple[int, str | None]]:
        """Return the number of admitted requests, and the remark of the refusal after them, part by part."""
        found, at = [], 0
        while at < len(commands):
            checked = gate.admit_run(peer, commands, at)
            end, refusal = checked.admitted_end, checked.refusal
            remark = None if refusal is None else str(refusal.remark).split(": ", 1)[1].rsplit(", ", 1)[0]
            found.append((end - at, remark))
            at = end + (refusal is not None)
        return found

    good, wrong, other = [("orders-pub", topic, secret) for topic, secret in
                          (("orders", SECRET), ("orders", "another"), ("others", SECRET))]  # fmt: skip
    failed, denied = "Check signature failed for accessKey=orders-pub", "No default permission for topic:others"
    commands = run(good, good, good, wrong, good, other, good)
    for _ in range(2):
        assert admitted(commands) == [(3, failed), (1, denied), (1, None)]
    assert admitted(run(*[good] * (MAX_RUN + 2))) == [(MAX_RUN, None), (2, None)]
    assert it.control.statistics().refused == {"access_key": 0, "account": 0, "signature": 2, "permission": 2}
    elsewhere: Any = Peer("192.0.2.2")
    assert it.control.admit_alike(elsewhere, commands, 0, 7)[0] == 0
    it.files.rules = Rules()
    assert admitted(commands)[0] == (0, "No acl config for orders-pub")


def repeated(name: str, value: str, *, first: bool = False) -> Callable[[int, bytes], bytes]:
    """Return a change of a header: one more ext field, before or after the others."""

    def change(dialect: int, header: bytes) -> bytes:
        if dialect == JSON:
            begin, end = header.index(b'"extFields":{') + len(b'"extFields":{'), header.index(b"}")
            field = b'"%b":"%b"' % (name.encode(), value.encode())
            return (
                header[:begin] + field + b"," + header[begin:] if first else header[:end] + b"," + field + header[end:]
            )
        ext = binary_entry(name, value) + header[21:] if first else header[21:] + binary_entry(name, value)
        return header[:17] + len(ext).to_bytes(4, "big") + ext

    return change


def replaced(old: str, new: str) -> Callable[[int, bytes], bytes]:
    """Return a change of a header: a text of the same length."""
    assert len(old) == len(new)
    return lambda _, header: header.replace(old.encode(), new.encode())


def in_json(old: str, new: str) -> Callable[[int, bytes], bytes]:
    """Return a change of a JSON header; in the binary dialect, one more field."""

    def change(dialect: int, header: bytes) -> bytes:
        return header.replace(old.encode(), new.encode(), 1) if dialect == JSON else repeated("x", "x")(dialect, header)

    return change


def many(dialect: int, header: bytes) -> bytes:
    """Return a header with more fields than the compiled reader has room for."""
    for number in range(60):
        header = repeated(f"x{number}", "x")(dialect, header)
    return header


ALTERED: Final[list[Callable[[int, bytes], bytes]]] = [
    replaced("orders-pub", "orders-sub"), replaced("orders-pub", "unknown-it"), replaced("AccessKey", "accesskey"),
    replaced("AccessKey", "AccessKe\x00"), replaced("Signature", "signature"), replaced("TBW102", "TBW103"),
    *(repeated(name, value) for name, value in (
        ("b", "others"), ("AccessKey", "an-admin"), ("Signature", "c2lnbmVk"), ("SecurityToken", "x"), ("x", "x"),
        ("a", "QG"), ("e", "1"), ("\u8ba2", "x"))),
    *(repeated(name, value, first=True) for name, value in (("x", "x"), ("\u8ba2", "x"))),
    repeated("x", "y" * 40_000), in_json('"flag":0', '"flag":1'), many,
    in_json('"b":"orders"', '"b":["orders"]'), in_json('"b":"orders"', '"b":"\\u006frdery"'),
    in_json('"b":"orders"', '"b":null'), in_json('"flag":0', '"extFields":{"b":"others"},"flag":0'),
    in_json('"Signature":"', '"Signature":"\\u0041'), in_json('"AccessKey":"orders-pub"', '"AccessKey":5'),
]  # fmt: skip


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
@pytest.mark.parametrize("change", ALTERED)
def test_no_altered_send_is_admitted_in_a_run(
    tmp_path: Path, dialect: int, change: Callable[[int, bytes], bytes]
) -> None:
    """A signature of another header or body admits nothing, after sends that are alike and as the first of a run."""
    it = Fixture(tmp_path, strict=True)
    gate = Gate(it.control)
    peer: Any = Peer()
    good = sent(dialect)
    header_end = 8 + int.from_bytes(good[5:8], "big")
    altered = encode_frame(dialect, change(dialect, good[8:header_end]), good[header_end:])
    assert altered != good
    for alien in (altered, good[:-1] + b"x"):
        run = commands_in(good * 2 + alien + good)
        assert len(run) == 4
        for _ in range(2):
            assert gate.admit_run(peer, run, 0).admitted_end == 2
            assert gate.admit_run(peer, run, 2).admitted_end == 2
            assert gate.admit_run(peer, run, 3) == Run(4)


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
def test_of_a_repeated_field_the_last_is_checked_signed_and_served(tmp_path: Path, dialect: int) -> None:
    """So a first field of the same name changes neither the topic nor the account of a send in a run."""
    it = Fixture(tmp_path, strict=True)
    peer: Any = Peer()
    good = sent(dialect)
    header_end = 8 + int.from_bytes(good[5:8], "big")
    for name, value in (("b", "others"), ("AccessKey", "an-admin"), ("Signature", "c2lnbmVk")):
        header = repeated(name, value, first=True)(dialect, good[8:header_end])
        run = commands_in(good * 2 + encode_frame(dialect, header, good[header_end:]))
        assert Gate(it.control).admit_run(peer, run, 0) == Run(3)
        assert [command.send_header.topic for command in run] == ["orders"] * 3
        assert {it.control.check(peer, command, requirement_of(SEND_V2)).account for command in run} == {"orders-pub"}


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
@pytest.mark.parametrize("code", [10, 39, 320, 325])
def test_a_run_ends_at_another_code(tmp_path: Path, dialect: int, code: int) -> None:
    """The code is not signed, so the next request is checked for its own code, in a run of its own."""
    it = Fixture(tmp_path, strict=True)
    peer: Any = Peer()
    good = sent(dialect)
    old, new = (b'"code":310', b'"code":%d' % code) if dialect == JSON else ((310).to_bytes(2), code.to_bytes(2))
    header_end = 8 + int.from_bytes(good[5:8], "big")
    other = encode_frame(dialect, good[8:header_end].replace(old, new, 1), good[header_end:])
    for run in (commands_in(good * 2 + other + good), commands_in(good * 2 + other * 2)):
        assert run[2].code == code
        for _ in range(2):
            assert Gate(it.control).admit_run(peer, run, 0) == Run(2)


def sent(dialect: int) -> bytes:
    """Return a send that is permitted, in the layout of the fast path."""
    send = {"a": "PG", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\x01A\x02"}
    command = signed(SEND_V2, "orders-pub", ORDERS | send, b"body")
    command.dialect = dialect
    return encode_command(command)


def commands_in(data: bytes) -> list[RemotingCommand]:
    return CommandDecoder().feed_commands(memoryview(data))


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
def test_fields_are_checked_as_received(tmp_path: Path, dialect: int) -> None:
    """JSON text with numbers signs as the text of its literals; the other dialects arrive as a map."""
    it = Fixture(tmp_path, strict=True)
    texts = {"AccessKey": "orders-pub", "b": "orders", "e": "10", "_UNIQUE_KEY_QUERY": "true"}
    content = "".join(texts[name] for name in sorted(texts) if name != "_UNIQUE_KEY_QUERY").encode()
    signature = SigningKey(SECRET).sign(content, b"")
    command = RemotingCommand(code=SEND_V2, dialect=dialect)
    if dialect == JSON:
        numbers = {**texts, "e": 10, "Signature": signature}
        command.raw_ext = msgspec.Raw(json.dumps(numbers).encode())
    else:
        command.ext = {**texts, "Signature": signature}
    assert it.remark(command) is None


@STRICT
def test_a_client_certificate_with_an_account_needs_no_signature(tmp_path: Path, strict: bool) -> None:
    """It has the permissions of that account; an AccessKey in the request counts instead of it."""
    it = Fixture(tmp_path, strict=strict)
    command = RemotingCommand(code=SEND_V2, ext=dict(ORDERS))
    assert it.check(command, subject="CN=orders") == Caller("orders-pub", Proof.CERTIFICATE)
    others = RemotingCommand(code=SEND_V2, ext={"b": "others"})
    assert it.remark(others, subject="CN=orders") == "No default permission for topic:others"
    assert it.remark(command, subject="CN=gone") == "No acl config for gone"
    assert it.remark(command, subject="CN=other") == "No accessKey is configured"
    assert it.remark(signed(SEND_V2, "nothing", ORDERS), subject="CN=orders") == NO_ORDERS


@STRICT
def test_traces_are_permitted(tmp_path: Path, strict: bool) -> None:
    """To every account with a right signature; reading them is not."""
    it = Fixture(tmp_path, strict=strict)
    topic = "RMQ_SYS_TRACE_TOPIC"
    assert it.remark(signed(SEND_V2, "nothing", {"b": topic})) is None
    assert it.remark(signed(SEND, "nothing", {"topic": topic})) is None
    assert it.remark(signed(SEND_V2, "nothing", {"b": topic}, secret="another")) is not None
    assert it.remark(signed(PULL, "nothing", {"topic": topic})) == f"No default permission for topic:{topic}"


# --- the table --------------------------------------------------------------------------------------------------------

PULLED: Final = {"topic": "orders", "consumerGroup": "G"}
HEARTBEAT: Final = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"orders"}]}],'
    b'"producerDataSet":[{"groupName":"PG"}]}'
)
LOCKS: Final = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}'
NO_ORDERS: Final = "No default permission for topic:orders"
NO_G: Final = "No default permission for group:G"
NO_PG: Final = "No default permission for group:PG"


@STRICT
@pytest.mark.parametrize(
    ("code", "ext", "body", "account", "remark"),
    [
        (10, {"topic": "orders"}, b"", "orders-pub", None),
        (10, {"topic": "orders"}, b"", "orders-sub", NO_ORDERS),
        (10, {"topic": "orders"}, b"", "nothing", NO_ORDERS),
        (10, {"topic": "others"}, b"", "orders-pub", "No default permission for topic:others"),
        (10, {}, b"", "nothing", None),
        (310, ORDERS, b"", "orders-pub", None),
        (310, ORDERS, b"", "pub-default", None),
        (310, ORDERS, b"", "sub-default", NO_ORDERS),
        (310, {"b": "%RETRY%G", "a": "PG"}, b"", "orders-sub", NO_PG),
        (310, {"b": "%RETRY%G", "a": "G"}, b"", "orders-sub", None),
        (310, {"b": "%DLQ%G", "a": "G"}, b"", "orders-sub", "No default permission for topic:%DLQ%G"),
        (36, {"group": "G"}, b"", "orders-sub", None),
        (36, {"group": "G"}, b"", "orders-pub", NO_G),
        (11, PULLED, b"", "orders-sub", None),
        (11, PULLED, b"", "sub-default", None),
        (11, PULLED | {"topic": "others"}, b"", "orders-sub", "No default permission for topic:others"),
        (11, PULLED | {"consumerGroup": "H"}, b"", "orders-sub", "No default permission for group:H"),
        (11, PULLED, b"", "orders-pub", NO_ORDERS),
        (11, PULLED, b"", "an-admin", None),
        (11, PULLED, b"", "admin-with-list", NO_ORDERS),
        (361, PULLED, b"", "orders-sub", None),
        (361, PULLED, b"", "nothing", NO_ORDERS),
        (12, {"topic": "orders"}, b"", "orders-sub", None),
        (12, {"topic": "orders"}, b"", "orders-pub", NO_ORDERS),
        (34, {}, HEARTBEAT, "orders-sub", None),
        (34, {}, HEARTBEAT, "nothing", NO_G),
        (34, {}, b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}]}', "nothing", None),
        (35, {"clientID": "c", "consumerGroup": "G"}, b"", "orders-sub", None),
        (35, {"clientID": "c", "consumerGroup": "G"}, b"", "nothing", NO_G),
        (35, {"clientID": "c", "producerGroup": "PG"}, b"", "nothing", None),
        (38, {"consumerGroup": "G"}, b"", "orders-sub", None),
        (38, {"consumerGroup": "G"}, b"", "nothing", NO_G),
        (15, PULLED, b"", "orders-sub", None),
        (15, PULLED, b"", "nothing", NO_G),
        (15, PULLED | {"topic": "others"}, b"", "orders-sub", "No default permission for topic:others"),
        (370, {"topic": "orders"}, b"", "orders-pub", None),
        (370, {"topic": "orders"}, b"", "orders-sub", NO_ORDERS),
        (14, PULLED, b"", "nothing", None),
        (33, {"offset": "0"}, b"", "nothing", None),
        (46, {}, b"", "nothing", None),
        (26, {}, b"", "nothing", None),
        (52, {}, b"", "nothing", None),
    ],
)
def test_what_a_request_needs(
    tmp_path: Path,
    strict: bool,
    code: int,
    ext: dict[str, str],
    body: bytes,
    account: str,
    remark: str | None,
) -> None:
    """With `aclStrict` and without."""
    assert Fixture(tmp_path, strict=strict).remark(signed(code, account, ext, body)) == remark


@pytest.mark.parametrize(
    ("code", "ext", "body", "account", "remark"),
    [
        (10, {"topic": "%RETRY%G", "producerGroup": "PG"}, b"", "orders-sub", NO_PG),
        (10, {"topic": "%RETRY%H", "producerGroup": "G"}, b"", "orders-sub", "No default permission for group:H"),
        (310, {"b": "%RETRY%H", "a": "G"}, b"", "orders-sub", "No default permission for group:H"),
        (320, ORDERS, b"", "orders-sub", NO_ORDERS),
        (324, {"topic": "orders"}, b"", "orders-sub", NO_ORDERS),
        (325, ORDERS, b"", "orders-sub", NO_ORDERS),
        (37, {"topic": "orders", "producerGroup": "PG"}, b"", "orders-sub", NO_ORDERS),
        (41, {}, LOCKS, "nothing", NO_ORDERS),
        (42, {}, LOCKS, "nothing", NO_ORDERS),
    ],
)
def test_requests_of_clients_that_only_strict_control_checks(
    tmp_path: Path, code: int, ext: dict[str, str], body: bytes, account: str, remark: str
) -> None:
    """4.9 permits them to every account; `aclStrict` checks them as their siblings."""
    assert Fixture(tmp_path, strict=False).remark(signed(code, account, ext, body)) is None
    assert Fixture(tmp_path, strict=True).remark(signed(code, account, ext, body)) == remark


@pytest.mark.parametrize(
    ("code", "ext", "body", "account"),
    [
        (320, ORDERS, b"", "orders-pub"),
        (325, ORDERS, b"", "orders-pub"),
        (37, {"topic": "orders", "producerGroup": "PG"}, b"", "orders-pub"),
        (37, {"producerGroup": "PG"}, b"", "orders-pub"),
        (41, {}, LOCKS, "orders-sub"),
        (42, {}, LOCKS, "orders-sub"),
    ],
)
def test_strict_control_permits_clients_with_their_permissions(
    tmp_path: Path, code: int, ext: dict[str, str], body: bytes, account: str
) -> None:
    """Batches, replies, transactions and orderly consumers need no administrator."""
    assert Fixture(tmp_path, strict=True).remark(signed(code, account, ext, body)) is None


@pytest.mark.parametrize("code", sorted(BROKER_REQUIREMENTS))
def test_which_requests_need_an_administrator(tmp_path: Path, code: int) -> None:
    """4.9's five and their lists; with `aclStrict` all requests that change the cluster."""
    refusal = f"Need admin permission for request code={code}, but accessKey=sub-default is not"
    command = signed(code, "sub-default", body=b"{}" if code in (34, 41, 42) else b"")
    of_4_9 = {17, 25, 215, 200, 207, 18, 225}
    strict, basic = (Fixture(tmp_path, strict=strict).remark(command) for strict in (True, False))
    assert (basic == refusal) == (code in of_4_9)
    assert (strict == refusal) == BROKER_REQUIREMENTS[code].changes
    assert Fixture(tmp_path, strict=True).remark(signed(code, "an-admin", body=command.body)) is None


def test_only_reads_stay_unchecked_with_strict_control() -> None:
    """Every other request needs an administrator or a permission; a client config is only parsed."""
    rows = BROKER_REQUIREMENTS.values()
    unchecked = [row for row in rows if row.need.strict is None and not row.need.admin and not row.changes]
    assert {row.code for row in unchecked if not READS.intersection(row.actions)} == {RequestCode.CHECK_CLIENT_CONFIG}


# --- changed rules, limits --------------------------------------------------------------------------------------------


async def test_decisions_are_forgotten_when_the_rules_change(tmp_path: Path) -> None:
    """Permissions, accounts and white addresses take effect with the next request."""
    it = Fixture(tmp_path, strict=True)
    command = signed(SEND_V2, "orders-pub", ORDERS)
    assert it.remark(command) is None
    assert it.remark(command) is None
    denied = {"accessKey": "orders-pub", "secretKey": SECRET, "topicPerms": ["orders=DENY"]}
    await it.files.run(lambda files: files.set_account(denied))
    assert it.remark(command) == NO_ORDERS
    await it.files.run(lambda files: files.delete_account("orders-pub"))
    assert it.remark(command) == "No acl config for orders-pub"
    await it.files.run(lambda files: files.set_white(["192.0.2.1"], ""))
    assert it.remark(command) is None


def test_the_caches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions and addresses; long names are not kept."""
    monkeypatch.setattr(decision_cache, "MOST_DECISIONS", 4)
    monkeypatch.setattr(control_module, "MOST_ADDRESSES", 4)
    it = Fixture(tmp_path, strict=True)
    for n in range(20):
        assert it.remark(signed(SEND_V2, "pub-default", {"b": f"t{n}"}), f"192.0.2.{n}") is None
        assert len(it.control._decisions) <= 4
        assert len(it.control._addresses) <= 4
    it.control._decisions.clear()
    assert it.remark(signed(SEND_V2, "pub-default", {"b": "t" * 256})) is None
    assert not it.control._decisions


def test_statistics_count_refusals_by_step(tmp_path: Path) -> None:
    """Permitted requests are not counted."""
    it = Fixture(tmp_path, strict=True)
    for command in (
        RemotingCommand(code=SEND_V2),
        signed(SEND_V2, "unknown", ORDERS),
        signed(SEND_V2, "orders-pub", ORDERS, secret="another"),
        signed(SEND_V2, "orders-sub", ORDERS),
        signed(SEND_V2, "orders-pub", ORDERS),
    ):
        it.remark(command)
    figures = it.control.statistics()
    assert figures.refused == {"access_key": 1, "account": 1, "signature": 1, "permission": 1}
    assert (figures.accounts, figures.broken_files) == (len(ACCOUNTS), 0)


def test_no_representation_contains_a_secret(tmp_path: Path) -> None:
    """Of the control and its rules."""
    it = Fixture(tmp_path, strict=True)
    assert SECRET not in repr(it.control) + repr(it.files) + repr(it.files.rules) + repr(it.files.rules.accounts)


# --- stored messages --------------------------------------------------------------------------------------------------


@STRICT
def test_rights_to_stored_messages(tmp_path: Path, strict: bool) -> None:
    """With `aclStrict` the account needs the permission on the topic of the message; reads by offset stay open."""
    it = Fixture(tmp_path, strict=strict)

    def permits(account: str, topic: str, action: Action, host: str = "192.0.2.1", subject: str | None = None) -> bool:
        command = signed(RequestCode.END_TRANSACTION, account) if account else RemotingCommand(code=37, ext={})
        peer: Any = Peer(host, subject)
        return it.control.rights_of(peer, command)(topic, action)

    assert permits("orders-pub", "orders", Action.PUB)
    assert permits("orders-pub", "other", Action.PUB) is not strict
    assert permits("orders-pub", "orders", Action.SUB) is not strict
    assert permits("orders-sub", "%RETRY%G", Action.SUB)
    assert permits("orders-sub", "%RETRY%H", Action.SUB) is not strict
    assert permits("an-admin", "other", Action.PUB)
    assert permits("at-home", "other", Action.PUB, host="10.0.0.7")
    assert permits("", "orders", Action.PUB, subject="CN=orders")
    assert permits("", "orders", Action.PUB) is not strict
    assert permits("unknown", "orders", Action.PUB) is not strict
    assert permits("nothing", "orders", Action.GET)


def test_rights_of_a_white_address_end_with_it(tmp_path: Path) -> None:
    """A request from a white address may name any account: it has not proven to be that account."""
    it = Fixture(tmp_path, strict=True, globalWhiteRemoteAddresses=["192.0.3.*"])
    peers: list[Any] = [Peer("192.0.3.1"), Peer("10.0.0.7")]
    kept = [
        it.control.rights_of(peer, signed(RequestCode.HEART_BEAT, account, secret="another"))
        for peer, account in zip(peers, ("an-admin", "at-home"), strict=True)
    ]
    assert all(rights("orders", Action.PUB) for rights in kept)
    accounts = [{"accessKey": name, "secretKey": SECRET, "admin": True} for name in ("an-admin", "at-home")]
    it.path.write_text(yaml.safe_dump({"accounts": accounts}))
    files = AclFiles(tmp_path, lambda: 0)
    files.open()
    it.files.rules = files.rules
    assert not any(rights("orders", Action.PUB) for rights in kept)
    assert it.control.rights_of(peers[0], signed(RequestCode.HEART_BEAT, "an-admin"))("orders", Action.PUB)


def test_long_requests_are_refused_without_hashing_their_names(tmp_path: Path) -> None:
    """If several permissions on long names are missing, the remark has the first name of the request."""
    it = Fixture(tmp_path, strict=True)
    first, second = "a" * MOST_ORDERED_CHARACTERS, "b"
    assert bucket_order([first, second]) == [second, first]
    remark = it.remark(signed(PULL, "nothing", {"topic": first, "consumerGroup": second}))
    assert remark is not None
    assert remark.startswith("No default permission for topic:aaa")
