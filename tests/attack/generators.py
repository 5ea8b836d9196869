"""An endless sequence of unusual requests from a seed: valid requests of every code, with mutations.

    generator = Generator(seed)
    generator.request()        one frame, and whether the connection is closed after it

A base is a request of real clients or operators: the transcripts under tests/golden/wire, and `BY_HAND` for codes
without a transcript. One to three mutations change it: fields (missing, another type, extreme, huge, control
characters, flags), properties with a meaning for the broker, the body, the dialect, the frame.

Effects that an operator without credentials may cause are not findings. So requests never concern the data of normal
clients: every name of a topic, group, client or broker in a base is replaced by a name of the attacker (`OWN`), and no
mutation produces a name of a normal client (`KEPT`, `LATER`). By code:

    code                        target
    17 18 215 216               the attacker's topics, internal topics, invalid names
    200 225 207                 the attacker's groups, invalid names
    15 41 42 222 223 307 309    the attacker's groups
    103 104 904 205 327         brokers that do not exist
    25 318                      unknown and protected keys, invalid values, keys without effect (`CONFIGS`)
    100 102                     the attacker's namespace
    306 316 329                 everything (data in use or not due must survive)

Under access control nothing is spared: `SigningGenerator` also names topics and groups of normal clients, the broker
itself, and settings that would stop it. Each of its requests comes from a caller without the rights to do harm
(`callers.py`). Some of them have fields twice.
"""

import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from struct import error as StructError
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from skylarkmq.broker.access.requests.table import BROKER_REQUIREMENTS, NAMESRV_REQUIREMENTS
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.message import BatchRecord, PropertyName, encode_batch
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.timers import DELETES, DEQUEUE_MS, ENQUEUE_MS, OUT_MS, ROLL_TIMES
from tests.attack.accounts import ACCOUNTS, OWN_GROUP, OWN_TOPIC
from tests.attack.callers import CALLERS, Caller, with_credentials
from tests.attack.normal_clients import BROKER_NAME, KEPT, LATER, NORMAL_GROUPS, long_names, send_header
from tests.harness.golden import transcripts
from tests.harness.raw import frame, texts

TOPICS: Final = tuple(f"Attack{n}" for n in range(8))
GROUPS: Final = tuple(f"attackers{n}" for n in range(8))
INTERNAL: Final = (*(str(value) for name, value in vars(SystemTopic).items() if name.isupper()), "rmq_sys_wheel_timer")
PROPERTIES: Final = (
    *(str(value) for name, value in vars(PropertyName).items() if name.isupper()),
    OUT_MS, ENQUEUE_MS, DEQUEUE_MS, ROLL_TIMES, DELETES, "TIMER_DELAY_SEC", "INNER_NUM", "INNER_BASE",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "POP_CK_OFFSET", "1ST_POP_TIME", "BUYER_ID", "INSTANCE_ID",
    "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "TRAN_MSG_ID", "__SHARDINGKEY", "DUP_INFO", "CONSUME_START_TIME",
)  # fmt: skip
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("topic", "b", "originTopic", "topicName"), TOPICS),
    **dict.fromkeys(("group", "consumerGroup", "producerGroup", "groupName", "a"), GROUPS),
    **dict.fromkeys(("brokerName", "bname", "n"), ("attackedBroker",)),
    **dict.fromkeys(("clusterName", "cluster"), ("AttackedCluster",)),
    **dict.fromkeys(("clientId", "clientID", "clientAddr"), ("127.0.0.1@attacker",)),
    "namespace": ("attack",),
    **dict.fromkeys(("username", "accessKey", "subject", "subjectFilter"), ("attacker",)),
    "brokerAddr": ("10.66.66.66:10911",),
}
CONFIGS: Final = (
    b"noSuchKey=1", b"\xff=\xff", b"=", b"fileReservedTime=never", b"listenPort=-1", b"flushDiskType=SOMETIMES",
    b"storePathRootDir=/nonexistent/attack", b"maxMessageSize=nine", b"brokerPermission=x", b"a" * 100_000,
    b"bindAddress=256.256.256.256", b"sendMessageThreadPoolNums=4", b"traceOn=\x00", b"k\n\n\nk=\x1b[2J",
)  # fmt: skip
ALL: Final[Mapping[str, tuple[str, ...]]] = {
    **OWN,
    **dict.fromkeys(("topic", "b", "originTopic", "topicName"), (OWN_TOPIC, OWN_TOPIC, KEPT, LATER, "Attack1")),
    **dict.fromkeys(
        ("group", "consumerGroup", "producerGroup", "groupName", "a"), (OWN_GROUP, OWN_GROUP, *NORMAL_GROUPS)
    ),
    **dict.fromkeys(("brokerName", "bname", "n"), (BROKER_NAME,)),
    **dict.fromkeys(("clusterName", "cluster"), ("DefaultCluster",)),
    "namespace": ("attack", "ORDER_TOPIC_CONFIG"),
    **dict.fromkeys(("username", "accessKey"), ("attacker", *(account.access_key for account in ACCOUNTS))),
    **dict.fromkeys(("subject", "subjectFilter"), tuple(f"User:{account.access_key}" for account in ACCOUNTS)),
}
"""Names under access control."""
HARMFUL_CONFIGS: Final = (
    b"brokerPermission=0", b"aclEnable=false", b"authenticationEnabled=false", b"authorizationEnabled=false",
    b"autoCreateTopicEnable=false", b"maxMessageSize=1", b"fileReservedTime=1", b"flushDiskType=ASYNC_FLUSH",
    b"aclStrict=false", b"kvConfigPath=/nonexistent", b"authenticationWhitelist=310,11,25,3001", b"auditLog=off",
    b"initAuthenticationUser={}", b"namesrvAuth=false", b"adminAllowedNetworks=0.0.0.0/0",
)  # fmt: skip
NUMBERS: Final = (
    0, -1, 1, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64,
    "9" * 5_000, "-" + "9" * 5_000, "1e9", "0x7f", "NaN", "Infinity", "٣", " 1", "1 ", "+1", "1_000", "",
)  # fmt: skip
NAMES: Final = (
    "../../x", "../../../victim", "a/b", ".", "..", "/", "x\0y", "x\ny", "\x1b[2J", "\x7f", "\u2028", "\U0001f600",
    "", " ", "%", "%RETRY%", "%DLQ%", "%RETRY%../../x", "%DLQ%a/b", "%RETRY%%RETRY%a", "a|b", "a%b", "T" * 127,
    "T" * 128, "T" * 255, "G" * 256, "T" * 32_767, "2024", "0", "../consumequeue/Attack0", "CON", "a\\b",
    "attack\u0130",
    *INTERNAL, "rmq_sys_other", "TBW102", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "CID_RMQ_SYS_TRANS",
)  # fmt: skip
TYPES: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], {"a": {}}, 1.5, 1e308, [None] * 10, {"": ""}, 7)
SYS_FLAGS: Final = (*(1 << bit for bit in range(32)), 12, 4 | 0x80, 0xFF, -1, 0x7FFF_FFFF)
BODIES: Final = (b"", b"\0", b"{", b"[", b"[]", b"null", b"{}", b"\xff" * 100, b"[" * 50_000, b'{"a":' * 20_000, b"0")


class Base(NamedTuple):
    """A valid request."""

    code: int
    ext: Mapping[str, object]
    body: bytes = b""


class OddRequest(NamedTuple):
    """A frame to send; `ends`: the connection is closed after it.

    Under access control, `caller` is set, and `fields` are the ext fields. Code and opaque are None if the daemon may
    read other numbers than those of the base.
    """

    data: bytes
    ends: bool = False
    code: int | None = None
    opaque: int | None = None
    caller: Caller | None = None
    fields: Mapping[str, object] = MappingProxyType({})


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


QUEUE: Final = {"topic": "Attack0", "brokerName": "attackedBroker", "queueId": 0}
BROKER: Final = {"brokerName": "b", "brokerAddr": "10.66.66.66:10911", "clusterName": "c", "brokerId": 0}
TOPIC: Final = {"topicName": "Attack0", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
VERSION: Final = {"stateVersion": 0, "timestamp": 1, "counter": 1}
REGISTRATION: Final = {
    "topicConfigSerializeWrapper": {"dataVersion": VERSION, "topicConfigTable": {"Attack0": TOPIC}},
    "filterServerList": [],
}
OF_TOPIC: Final = {"topic": "Attack0"}
USER: Final = {"username": "attacker", "password": "attack", "userType": "Super", "userStatus": "enable"}
ENTRY: Final = {"resource": "Topic:*", "actions": ["All"], "sourceIps": ["127.0.0.1"], "decision": "Allow"}
ACL: Final = {"subject": "User:attacker", "policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
OF_USER: Final = {"username": "attacker"}
OF_SUBJECT: Final = {"subject": "User:attacker"}
PLAIN_ACCOUNT: Final = {
    "accessKey": "attacker", "secretKey": "attack secret", "admin": "true", "defaultTopicPerm": "PUB|SUB",
    "defaultGroupPerm": "SUB", "topicPerms": "Attack0=PUB|SUB", "groupPerms": "attackers0=SUB",
}  # fmt: skip
BY_HAND: Final = (
    Base(RequestCode.SEND_MESSAGE, long_names(send_header("Attack0")), b"body"),
    Base(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, _json({"topicConfigList": [TOPIC]})),
    Base(RequestCode.REGISTER_BROKER, {**BROKER, "haServerAddr": ""}, _json(REGISTRATION)),
    Base(RequestCode.UNREGISTER_BROKER, BROKER),
    Base(RequestCode.QUERY_DATA_VERSION, BROKER, _json(VERSION)),
    Base(RequestCode.BROKER_HEARTBEAT, BROKER),
    Base(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, _json({"groupConfigList": [{"groupName": "g"}]})),
    Base(RequestCode.QUERY_CONSUME_TIME_SPAN, {**OF_TOPIC, "group": "g"}),
    Base(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Base(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"noSuchKey=1"),
    Base(RequestCode.RESUME_CHECK_HALF_MESSAGE, {**OF_TOPIC, "msgId": "7F00000100002A9F0000000000000000"}),
    Base(RequestCode.SEND_REPLY_MESSAGE, long_names(send_header("DefaultCluster_REPLY_TOPIC")), b"body"),
    Base(RequestCode.SEND_REPLY_MESSAGE_V2, send_header("DefaultCluster_REPLY_TOPIC"), b"body"),
    Base(RequestCode.GET_TOPIC_CONFIG, OF_TOPIC),
    Base(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}),
    Base(RequestCode.RECALL_MESSAGE, {**OF_TOPIC, "recallHandle": "djEgYSBiIDAgeA==", "producerGroup": "g"}),
    Base(50, PLAIN_ACCOUNT),
    Base(51, {"accessKey": "attacker"}),
    Base(52, {}),
    Base(53, {"globalWhiteAddrs": "127.0.0.1,*", "aclFileFullPath": ""}),
    *(Base(code, OF_USER, _json(USER)) for code in (3001, 3002)),
    *(Base(code, OF_USER) for code in (3003, 3004)),
    Base(3005, {"filter": ""}),
    *(Base(code, OF_SUBJECT, _json(ACL)) for code in (3006, 3007)),
    Base(3008, {**OF_SUBJECT, "policyType": "Custom", "resource": "Topic:*"}),
    Base(3009, OF_SUBJECT),
    Base(3010, {"subjectFilter": "", "resourceFilter": ""}),
    Base(
        RequestCode.SEND_BATCH_MESSAGE,
        send_header("Attack0", m="true"),
        encode_batch(BatchRecord(0, b"%d" % n, b"") for n in range(3)),
    ),
)


@cache
def bases() -> dict[int, list[Base]]:
    """Return valid requests by code. A code without a captured or written one needs no fields."""
    found: dict[int, list[Base]] = {}
    captured = [
        Base(frame.header["code"], frame.header.get("extFields") or {}, bytes(frame.body))
        for frame in transcripts()
        if not frame.header.get("flag", 0) & 1 and frame.direction.startswith("client")
    ]
    pulls = [base for base in captured if base.code == RequestCode.PULL_MESSAGE]
    lite = [base._replace(code=RequestCode.LITE_PULL_MESSAGE) for base in pulls]
    for base in (*captured, *lite, *BY_HAND):
        found.setdefault(base.code, []).append(base)
    for code in (*BROKER_REQUIREMENTS, *NAMESRV_REQUIREMENTS):
        found.setdefault(code, [Base(code, {})])
    return found


class Generator:
    """Generates requests; the same seed gives the same requests."""

    names = OWN

    def __init__(self, seed: object) -> None:
        self._rng = random.Random(repr(seed))
        self._codes = sorted(bases())
        self._opaque = 0

    def __repr__(self) -> str:
        return f"<Generator {self._opaque} requests>"

    def request(self) -> OddRequest:
        """Return the next request."""
        rng = self._rng
        self._opaque += 1
        code = rng.choice(self._codes if rng.random() < 0.7 else SENDS)
        base = rng.choice(bases()[code])
        names = self.names
        ext = {name: rng.choice(names[name]) if name in names else value for name, value in base.ext.items()}
        odd = MutatedRequest(code, ext, self._own_body(base))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            rng.choices(MUTATIONS, WEIGHTS)[0](rng, odd)
        return self._framed(odd)

    def _own_body(self, base: Base) -> bytes:
        """Return the body of a base; settings are replaced by those of the attacker."""
        if base.code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG):
            return self._rng.choice(CONFIGS)
        return base.body

    def _framed(self, odd: "MutatedRequest") -> OddRequest:
        data = self._encoded(odd)
        if odd.damage:
            return OddRequest(_damaged(self._rng, data), ends=True)
        return OddRequest(data)

    def _encoded(self, odd: "MutatedRequest") -> bytes:
        if odd.dialect == JSON:
            header = {"code": odd.code, "opaque": self._opaque, "flag": odd.flag, "extFields": odd.ext} | odd.members
            return frame(header, odd.body)
        fields = {str(name): value if isinstance(value, str) else str(value) for name, value in odd.ext.items()}
        command = RemotingCommand(code=odd.code, flag=odd.flag, opaque=self._opaque, version=479)
        command.ext, command.body, command.dialect = fields, odd.body, odd.dialect
        try:
            return encode_command(command)
        except (ValueError, OverflowError, StructError):  # cannot be encoded in this dialect
            return frame({"code": odd.code, "opaque": self._opaque, "extFields": fields}, odd.body)


class SigningGenerator(Generator):
    """Generates requests of every caller, for a daemon with access control."""

    names = ALL

    def request(self) -> OddRequest:
        """Return the next request."""
        self._opaque += OPAQUE_STEP
        return super().request()

    def _own_body(self, base: Base) -> bytes:
        """Return the body of a base with other names, or harmful settings."""
        rng = self._rng
        if base.code in CONFIGURING:
            return rng.choice(HARMFUL_CONFIGS)
        try:
            tree = json.loads(base.body)
        except (ValueError, RecursionError):
            return base.body
        return json.dumps(_renamed(rng, tree)).encode()

    def _framed(self, odd: "MutatedRequest") -> OddRequest:
        rng = self._rng
        caller = rng.choice(CALLERS)
        if odd.dialect != JSON:  # their fields are texts
            odd.ext = texts(odd.ext)
        odd.ext = with_credentials(rng, caller, odd.ext, odd.body)
        data = self._encoded(odd)
        if odd.damage:
            return OddRequest(_damaged(rng, data), ends=True, caller=caller, fields=odd.ext)
        code, opaque = (None, None) if odd.members else (odd.code, self._opaque)
        if rng.random() < 0.02:
            data = _with_repeated_field(rng, odd, self._opaque)
        return OddRequest(data, False, code, opaque, caller, odd.ext)


def _renamed(rng: random.Random, tree: Any) -> Any:
    """Return the JSON value with other topics, groups and clients."""
    if isinstance(tree, dict):
        return {
            key: rng.choice(ALL[key]) if key in ALL and isinstance(value, str) else _renamed(rng, value)
            for key, value in tree.items()
        }
    return [_renamed(rng, value) for value in tree] if isinstance(tree, list) else tree


def _with_repeated_field(rng: random.Random, odd: "MutatedRequest", opaque: int) -> bytes:
    """Return a JSON frame in which one field, of another value, comes before or after the signed fields."""
    name = rng.choice([name for name in odd.ext if name in ALL] or ["topic"])
    twice = json.dumps({name: rng.choice(ALL.get(name, (KEPT,)))})[1:-1]
    if rng.random() < 0.3:
        twice = twice.replace(f'"{name}"', f'"\\u{ord(name[0]):04x}{name[1:]}"', 1)
    fields = json.dumps(odd.ext)[1:-1]
    parts = [twice, fields] if rng.random() < 0.5 else [fields, twice]
    ext = ", ".join(part for part in parts if part)
    header = f'{{"code": {odd.code}, "language": "JAVA", "version": 479, "opaque": {opaque}, "flag": {odd.flag}, '
    text = f'{header}"extFields": {{{ext}}}}}'.encode()
    return (4 + len(text) + len(odd.body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + odd.body


class MutatedRequest:
    """A request that mutations change."""

    def __init__(self, code: int, ext: dict[str, Any], body: bytes) -> None:
        self.code = code
        self.ext = ext
        self.body = body
        self.flag = 0
        self.dialect = JSON
        self.members: dict[str, Any] = {}
        self.damage = False

    def __repr__(self) -> str:
        return f"<MutatedRequest {self.code} {self.ext}>"

    def field(self, rng: random.Random) -> str:
        """Return one of its fields, or one that it does not have."""
        return rng.choice([*self.ext]) if self.ext and rng.random() < 0.95 else rng.choice([*OWN, "queueId", "offset"])


def drop(rng: random.Random, odd: MutatedRequest) -> None:
    odd.ext.pop(odd.field(rng), None)


def retype(rng: random.Random, odd: MutatedRequest) -> None:
    odd.ext[odd.field(rng)] = rng.choice(TYPES)


def renumber(rng: random.Random, odd: MutatedRequest) -> None:
    value = rng.choice(NUMBERS)
    odd.ext[odd.field(rng)] = value if rng.random() < 0.2 else str(value)


def rename(rng: random.Random, odd: MutatedRequest) -> None:
    names = [name for name in odd.ext if name in OWN] or [odd.field(rng)]
    odd.ext[rng.choice(names)] = rng.choice(NAMES)


def enlarge(rng: random.Random, odd: MutatedRequest) -> None:
    if rng.random() < 0.03:
        odd.body = bytes(rng.choice((70_000, 300_000, 4_300_000)))
    else:
        odd.ext[odd.field(rng)] = rng.choice("x\x01\x02,") * rng.choice((256, 33_000, 70_000))


def flags(rng: random.Random, odd: MutatedRequest) -> None:
    odd.flag = rng.choice((1, 2, 3, 0x80, -1, 2**31 - 1, 2, 2))


def sys_flags(rng: random.Random, odd: MutatedRequest) -> None:
    for name in ("sysFlag", "f"):
        if name in odd.ext:
            odd.ext[name] = str(rng.choice(SYS_FLAGS))


def properties(rng: random.Random, odd: MutatedRequest) -> None:
    entries = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = rng.choice(rng.choice((NUMBERS, NAMES, ("true", "false", "k1 k2", "3", "1000"))))
        entries.append(f"{rng.choice(PROPERTIES)}{rng.choice(SEPARATORS)}{value}{rng.choice(ENDS)}")
    name = "i" if "i" in odd.ext else "properties"
    odd.ext[name] = "".join(entries) + str(odd.ext.get(name, ""))


def bodily(rng: random.Random, odd: MutatedRequest) -> None:
    if odd.code in CONFIGURING:
        return
    try:
        tree = json.loads(odd.body)
    except (ValueError, RecursionError):
        odd.body = _damaged(rng, odd.body) if odd.body and rng.random() < 0.7 else rng.choice(BODIES)
    else:
        odd.body = json.dumps(_changed(rng, tree)).encode() if rng.random() < 0.8 else rng.choice(BODIES)


def dialect(rng: random.Random, odd: MutatedRequest) -> None:
    odd.dialect = rng.choice((ROCKETMQ, MSGPACK))


def members(rng: random.Random, odd: MutatedRequest) -> None:
    name = rng.choice(MEMBERS)
    odd.members[name] = rng.choice((*TYPES, *NUMBERS, "JAVA"))


def frames(_rng: random.Random, odd: MutatedRequest) -> None:
    odd.damage = True


MEMBERS: Final = ("(sent)", "(ext)", "(body)", "(dialect)", "code", "opaque", "version", "language", "remark", "x")
OPAQUE_STEP: Final = 1_008
"""Under access control, so that no changed byte makes the opaque of another request in flight."""
SENDS: Final = (10, 310, 310, 320, 36, 37, 324, 325)
CONFIGURING: Final = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)
SEPARATORS: Final = ("\x01", "\x01", "\x01", "\x01", "", "\x01\x01", "\x02")
ENDS: Final = ("\x02", "\x02", "\x02", "", "\x01", "\x02\x02")
_WEIGHTED: Final[Mapping[Callable[[random.Random, MutatedRequest], None], int]] = {
    drop: 4, retype: 4, renumber: 8, rename: 8, enlarge: 1, flags: 2, sys_flags: 4, properties: 10, bodily: 8,
    dialect: 6, members: 2, frames: 1,
}  # fmt: skip
MUTATIONS: Final = list(_WEIGHTED)
WEIGHTS: Final = list(_WEIGHTED.values())


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Return truncated data, or data with changed bytes, anywhere or at the beginning."""
    kind = rng.randrange(3)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        damaged[rng.randrange(len(data) if kind == 1 else min(12, len(data)))] = rng.randrange(256)
    return bytes(damaged)


def _changed(rng: random.Random, tree: Any) -> Any:
    """Return the JSON value with one part replaced."""
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        name = rng.choice(list(tree))
        if rng.random() < 0.1:
            return {key: value for key, value in tree.items() if key != name}
        return tree | {name: _changed(rng, tree[name])}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        at = rng.randrange(len(tree))
        return [*tree[:at], _changed(rng, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, list) and rng.random() < 0.2:
        return tree * rng.choice((0, 2, 1_000))
    return rng.choice((rng.choice(NUMBERS), rng.choice(NAMES), rng.choice(TYPES)))
