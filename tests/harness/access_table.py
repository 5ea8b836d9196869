"""The responses of a broker with access control: each request code, sent by each of many callers.

`TABLES` has one entry for each generation of RocketMQ's access control: its accounts, and the callers that use them.
`responses` sends every request of REQUESTS as every caller and returns (code, remark) of each response. The responses
of RocketMQ's own brokers are under tests/golden/access; the README there describes the files.

A caller that is admitted changes the broker: it creates topics, groups, users. The requests are in an order in which
each caller removes what it has created, so the response to one caller does not depend on the callers before it.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import Credentials, RawClient

TOPIC, OTHER_TOPIC, GROUP, OTHER_GROUP = "Alpha", "Beta", "readers", "others"
RETRY_TOPIC: Final = f"%RETRY%{GROUP}"
SCRATCH_TOPIC, SCRATCH_GROUP, SCRATCH_USER = "Scratch", "scratch-group", "newcomer"
SECRET: Final = "12345678"
WHITE, GLOBALLY_WHITE = "127.0.0.3", "127.0.0.4"
"""Loopback addresses from which callers connect that are accepted by their address."""

GOLDEN: Final = Path(__file__).resolve().parent.parent / "golden" / "access"


class Request(NamedTuple):
    """One row of the table. `name` is RocketMQ's name of the code, and the case if there is more than one."""

    name: str
    code: int
    ext: Mapping[str, object]
    body: bytes = b""


class Caller(NamedTuple):
    """One column of the table: how its requests are signed, and the address that they come from."""

    name: str
    credentials: Credentials | None = None
    source: str = LOOPBACK
    unsigned: Mapping[str, str] = {}  # fields that are added as they are, after the signature

    def client(self, port: int) -> RawClient:
        return RawClient(LOOPBACK, port, WAIT_LIMIT_S, source=self.source, credentials=self.credentials)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def batch(*bodies: bytes) -> bytes:
    """Return the body of a batch: size, magic, CRC, flag, body, and properties, of which there are none."""
    records = (struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", 0) for body in bodies)
    return b"".join(struct.pack(">i", len(record) + 4) + record for record in records)


def sends(topic: str, group: str = "senders", **fields: object) -> dict[str, object]:
    names = {"topic": topic, "producerGroup": group, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    flags = {"queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "reconsumeTimes": 0, "unitMode": False}
    return {**names, **flags, "properties": "", "batch": False, **fields}


def short_names(ext: Mapping[str, object]) -> dict[str, object]:
    """Return the header of a send with the one-letter names of SEND_MESSAGE_V2."""
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    letters = dict(zip((*names, "flag", "properties", "reconsumeTimes", "unitMode"), "abcdefghijk", strict=True))
    return {letters.get(name, "m"): value for name, value in ext.items()}


def pulls(topic: str, group: str = GROUP) -> dict[str, object]:
    of_queue = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4}
    return {**of_queue, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}


def heartbeat(group: str, *topics: str) -> bytes:
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"} for topic in topics]
    kinds = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False}
    consumer = {"groupName": group, **kinds, "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    consumers = [{**consumer, "subscriptionDataSet": subscriptions}] if group else []
    return encoded({"clientID": "member", "producerDataSet": [{"groupName": "senders"}], "consumerDataSet": consumers})


def locks(group: str, topic: str) -> bytes:
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    return encoded({"consumerGroup": group, "clientId": "member", "mqSet": [queue]})


def topic_config(topic: str) -> dict[str, object]:
    return {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}


def creates_topic(topic: str) -> dict[str, object]:
    queues = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    return {**queues, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}


def policies(*resources: str, actions: Sequence[str] = ("Pub", "Sub"), **entry: object) -> bytes:
    """Return the body of a request that creates a policy which allows the actions, unless `entry` differs."""
    entries = [{"resource": name, "actions": list(actions), "decision": "Allow", **entry} for name in resources]
    return encoded({"policies": [{"policyType": "Custom", "entries": entries}]})


OF_QUEUE: Final = {"topic": TOPIC, "queueId": 0}
OF_GROUP: Final = {"consumerGroup": GROUP}
OFFLINE: Final = {**OF_GROUP, "clientId": "offline"}
REPLY: Final = sends("DefaultCluster_REPLY_TOPIC", properties="REPLY_TO_CLIENT\x01offline\x02CORRELATION_ID\x011\x02")
HALF: Final = {"producerGroup": "senders", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}
MISSING_ID: Final = "7F00000100002A9F00000000000F4240"
SUBSCRIPTION: Final = {"topic": TOPIC, "subString": "*", "expressionType": "TAG", "subVersion": 1}
OF_USER: Final = {"subject": f"User:{SCRATCH_USER}"}
OF_SUPER: Final = {"username": "super-user"}

REQUESTS: Final = (
    Request("SEND_MESSAGE", 10, sends(TOPIC), b"x"),
    Request("SEND_MESSAGE to a retry topic", 10, sends(RETRY_TOPIC, GROUP), b"x"),
    Request("SEND_MESSAGE to a retry topic, with the key group", 10, sends(RETRY_TOPIC, group=GROUP), b"x"),
    Request("SEND_MESSAGE to the trace topic", 10, sends("RMQ_SYS_TRACE_TOPIC"), b"x"),
    Request("SEND_MESSAGE without a topic", 10, {"producerGroup": "senders"}, b"x"),
    Request("SEND_MESSAGE_V2", 310, short_names(sends(TOPIC)), b"x"),
    Request("SEND_MESSAGE_V2 to a retry topic", 310, short_names(sends(RETRY_TOPIC, GROUP)), b"x"),
    Request("SEND_MESSAGE_V2 to the trace topic", 310, short_names(sends("RMQ_SYS_TRACE_TOPIC")), b"x"),
    Request("SEND_BATCH_MESSAGE", 320, short_names(sends(TOPIC, batch=True)), batch(b"x", b"y")),
    Request("SEND_REPLY_MESSAGE", 324, REPLY, b"x"),
    Request("SEND_REPLY_MESSAGE_V2", 325, short_names(REPLY), b"x"),
    Request("RECALL_MESSAGE", 370, {"topic": TOPIC, "recallHandle": "x", "producerGroup": "senders"}),
    Request("END_TRANSACTION", 37, {**HALF, "msgId": MISSING_ID}),
    Request("END_TRANSACTION with a topic", 37, {**HALF, "msgId": MISSING_ID, "topic": TOPIC}),
    Request("CONSUMER_SEND_MSG_BACK", 36, {"offset": 1_000_000, "group": GROUP, "delayLevel": 0}),
    Request("PULL_MESSAGE", 11, pulls(TOPIC)),
    Request("PULL_MESSAGE of a retry topic", 11, pulls(RETRY_TOPIC)),
    Request("PULL_MESSAGE by another group", 11, pulls(TOPIC, OTHER_GROUP)),
    Request("LITE_PULL_MESSAGE", 361, pulls(TOPIC)),
    Request("QUERY_MESSAGE", 12, {"topic": TOPIC, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9}),
    Request("QUERY_CONSUMER_OFFSET", 14, {**OF_GROUP, **OF_QUEUE}),
    Request("UPDATE_CONSUMER_OFFSET", 15, {**OF_GROUP, **OF_QUEUE, "commitOffset": 0}),
    Request("SEARCH_OFFSET_BY_TIMESTAMP", 29, {**OF_QUEUE, "timestamp": 0}),
    Request("GET_MAX_OFFSET", 30, OF_QUEUE),
    Request("GET_MIN_OFFSET", 31, OF_QUEUE),
    Request("GET_EARLIEST_MSG_STORETIME", 32, OF_QUEUE),
    Request("VIEW_MESSAGE_BY_ID", 33, {"offset": 1_000_000}),
    Request("VIEW_MESSAGE_BY_ID with a topic", 33, {"offset": 1_000_000, "topic": TOPIC}),
    Request("GET_CONSUMER_LIST_BY_GROUP", 38, OF_GROUP),
    Request("LOCK_BATCH_MQ", 41, {}, locks(GROUP, TOPIC)),
    Request("UNLOCK_BATCH_MQ", 42, {}, locks(GROUP, TOPIC)),
    Request(
        "CHECK_CLIENT_CONFIG", 46, {}, encoded({"clientId": "c", "group": GROUP, "subscriptionData": SUBSCRIPTION})
    ),
    Request("UPDATE_AND_CREATE_TOPIC", 17, creates_topic(SCRATCH_TOPIC)),
    Request("UPDATE_AND_CREATE_TOPIC_LIST", 18, {}, encoded({"topicConfigList": [topic_config(SCRATCH_TOPIC)]})),
    Request("GET_TOPIC_CONFIG", 351, {"topic": TOPIC}),
    Request("GET_ALL_TOPIC_CONFIG", 21, {}),
    Request("DELETE_TOPIC_IN_BROKER", 215, {"topic": SCRATCH_TOPIC}),
    Request("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", 200, {}, encoded({"groupName": SCRATCH_GROUP})),
    Request(
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
        225,
        {},
        encoded({"groupConfigList": [{"groupName": SCRATCH_GROUP}]}),
    ),
    Request("GET_SUBSCRIPTIONGROUP_CONFIG", 352, {"group": GROUP}),
    Request("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", 201, {}),
    Request("DELETE_SUBSCRIPTIONGROUP", 207, {"groupName": SCRATCH_GROUP}),
    Request("UPDATE_BROKER_CONFIG", 25, {}, b"noSuchKey=1\n"),
    Request("GET_BROKER_CONFIG", 26, {}),
    Request("GET_BROKER_RUNTIME_INFO", 28, {}),
    Request("GET_ALL_CONSUMER_OFFSET", 43, {}),
    Request("GET_ALL_DELAY_OFFSET", 45, {}),
    Request("GET_TOPIC_STATS_INFO", 202, {"topic": TOPIC}),
    Request("GET_CONSUMER_CONNECTION_LIST", 203, OF_GROUP),
    Request("GET_PRODUCER_CONNECTION_LIST", 204, {"producerGroup": "absent"}),
    Request("GET_CONSUME_STATS", 208, OF_GROUP),
    Request("INVOKE_BROKER_TO_RESET_OFFSET", 222, {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}),
    Request("INVOKE_BROKER_TO_GET_CONSUMER_STATUS", 223, {"topic": TOPIC, "group": GROUP}),
    Request("QUERY_TOPIC_CONSUME_BY_WHO", 300, {"topic": TOPIC}),
    Request("QUERY_CONSUME_TIME_SPAN", 303, {"topic": TOPIC, "group": GROUP}),
    Request("GET_SYSTEM_TOPIC_LIST_FROM_BROKER", 305, {}),
    Request("CLEAN_EXPIRED_CONSUMEQUEUE", 306, {}),
    Request("CLEAN_UNUSED_TOPIC", 316, {}),
    Request("DELETE_EXPIRED_COMMITLOG", 329, {}),
    Request("GET_CONSUMER_RUNNING_INFO", 307, {**OFFLINE, "jstackEnable": False}),
    Request("CONSUME_MESSAGE_DIRECTLY", 309, {**OFFLINE, "msgId": MISSING_ID, "brokerName": "broker-a"}),
    Request("VIEW_BROKER_STATS_DATA", 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}),
    Request("GET_BROKER_CONSUME_STATS", 317, {"isOrder": False}),
    Request("QUERY_CONSUME_QUEUE", 321, {**OF_QUEUE, "index": 0, "count": 1}),
    Request("RESUME_CHECK_HALF_MESSAGE", 323, {"msgId": MISSING_ID}),
    Request("GET_ALL_PRODUCER_INFO", 328, {}),
    Request("HEART_BEAT", 34, {}, heartbeat(GROUP, TOPIC, RETRY_TOPIC)),
    Request("HEART_BEAT of a producer", 34, {}, heartbeat("")),
    Request("HEART_BEAT with another topic", 34, {}, heartbeat(GROUP, OTHER_TOPIC)),
    Request("HEART_BEAT without a body", 34, {}),
    Request("UNREGISTER_CLIENT", 35, {"clientID": "member", "consumerGroup": GROUP, "producerGroup": "senders"}),
    Request("UNREGISTER_CLIENT of a producer", 35, {"clientID": "member", "producerGroup": "senders"}),
    Request("UPDATE_AND_CREATE_ACL_CONFIG", 50, {"accessKey": SCRATCH_USER, "secretKey": SECRET, "admin": False}),
    Request("UPDATE_AND_CREATE_ACL_CONFIG, key too short", 50, {"accessKey": "a", "secretKey": "b", "admin": False}),
    Request("DELETE_ACL_CONFIG", 51, {"accessKey": SCRATCH_USER}),
    Request("DELETE_ACL_CONFIG, unknown", 51, {"accessKey": "unknown"}),
    Request("GET_BROKER_CLUSTER_ACL_INFO", 52, {}),
    Request("UPDATE_GLOBAL_WHITE_ADDRS_CONFIG", 53, {"globalWhiteAddrs": GLOBALLY_WHITE, "aclFileFullPath": ""}),
    Request("GET_BROKER_CLUSTER_ACL_CONFIG", 54, {}),
    Request("AUTH_CREATE_USER", 3001, {"username": SCRATCH_USER}, encoded({"password": SECRET})),
    Request("AUTH_CREATE_USER, existing", 3001, {"username": SCRATCH_USER}, encoded({"password": SECRET})),
    Request("AUTH_CREATE_USER, blank", 3001, {"username": ""}, encoded({"password": SECRET})),
    Request("AUTH_CREATE_USER, no password", 3001, {"username": "incomplete"}, encoded({"userType": "Normal"})),
    Request("AUTH_CREATE_USER, no body", 3001, {"username": "incomplete"}),
    Request("AUTH_CREATE_USER, super", 3001, {"username": "boss"}, encoded({"password": SECRET, "userType": "Super"})),
    Request("AUTH_UPDATE_USER", 3002, {"username": SCRATCH_USER}, encoded({"userStatus": "disable"})),
    Request("AUTH_UPDATE_USER, unknown", 3002, {"username": "unknown"}, encoded({"password": SECRET})),
    Request("AUTH_UPDATE_USER, super", 3002, OF_SUPER, encoded({"userStatus": "enable"})),
    Request("AUTH_UPDATE_USER, to super", 3002, {"username": SCRATCH_USER}, encoded({"userType": "Super"})),
    Request("AUTH_GET_USER", 3004, {"username": SCRATCH_USER}),
    Request("AUTH_GET_USER, unknown", 3004, {"username": "unknown"}),
    Request("AUTH_GET_USER, blank", 3004, {"username": ""}),
    Request("AUTH_LIST_USER", 3005, {"filter": "new"}),
    Request("AUTH_CREATE_ACL", 3006, OF_USER, policies("Topic:Alpha", "Group:rea*")),
    Request("AUTH_CREATE_ACL, unknown user", 3006, {"subject": "User:unknown"}, policies("Topic:Alpha")),
    Request("AUTH_CREATE_ACL, no body", 3006, OF_USER),
    Request("AUTH_CREATE_ACL, bad subject", 3006, {"subject": "nobody"}, policies("Topic:Alpha")),
    Request("AUTH_CREATE_ACL, bad resource", 3006, OF_USER, policies("Queue:Alpha")),
    Request("AUTH_CREATE_ACL, action Any", 3006, OF_USER, policies("Topic:Alpha", actions=("Any",))),
    Request("AUTH_CREATE_ACL, bad action", 3006, OF_USER, policies("Topic:Alpha", actions=("Fly",))),
    Request("AUTH_CREATE_ACL, no action", 3006, OF_USER, policies("Topic:Alpha", actions=())),
    Request("AUTH_CREATE_ACL, bad address", 3006, OF_USER, policies("Topic:Alpha", sourceIps=["10.0.0.300"])),
    Request("AUTH_CREATE_ACL, bad decision", 3006, OF_USER, policies("Topic:Alpha", decision="Perhaps")),
    Request("AUTH_CREATE_ACL, no policies", 3006, OF_USER, encoded({"policies": []})),
    Request("AUTH_CREATE_ACL, no entries", 3006, OF_USER, encoded({"policies": [{"entries": []}]})),
    Request("AUTH_UPDATE_ACL", 3007, OF_USER, policies("Topic:Alpha", decision="Deny")),
    Request("AUTH_GET_ACL", 3009, OF_USER),
    Request("AUTH_GET_ACL, unknown user", 3009, {"subject": "User:unknown"}),
    Request("AUTH_GET_ACL, no policies", 3009, {"subject": "User:without-policies"}),
    Request("AUTH_LIST_ACL", 3010, {"subjectFilter": SCRATCH_USER, "resourceFilter": "Alpha"}),
    Request("AUTH_DELETE_ACL, unknown resource", 3008, {**OF_USER, "policyType": "Custom", "resource": "Topic:Zeta"}),
    Request("AUTH_DELETE_ACL, one resource", 3008, {**OF_USER, "policyType": "Custom", "resource": "Topic:Alpha"}),
    Request("AUTH_DELETE_ACL", 3008, OF_USER),
    Request("AUTH_DELETE_ACL, none left", 3008, OF_USER),
    Request("AUTH_DELETE_ACL, unknown user", 3008, {"subject": "User:unknown"}),
    Request("AUTH_DELETE_USER, super", 3003, {"username": "boss"}),
    Request("AUTH_DELETE_USER", 3003, {"username": SCRATCH_USER}),
    Request("AUTH_DELETE_USER, unknown", 3003, {"username": "unknown"}),
    Request("an unknown code", 9_999, {}),
)


def signs(account: str) -> Caller:
    return Caller(account, Credentials(account, SECRET))


PLAIN_ACCOUNTS: Final[tuple[dict[str, object], ...]] = (
    {"accessKey": "administrator", "admin": True},
    {"accessKey": "limited-administrator", "admin": True, "topicPerms": [f"{TOPIC}=SUB"]},
    {"accessKey": "without-rights"},
    {"accessKey": "publisher", "topicPerms": [f"{TOPIC}=PUB"]},
    {"accessKey": "subscriber", "topicPerms": [f"{TOPIC}=SUB"], "groupPerms": [f"{GROUP}=SUB"]},
    {"accessKey": "topic-subscriber", "topicPerms": [f"{TOPIC}=PUB|SUB"]},
    {"accessKey": "group-subscriber", "groupPerms": [f"{GROUP}=SUB"]},
    {"accessKey": "by-default", "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"},
    {
        "accessKey": "denied-account",
        "defaultTopicPerm": "PUB|SUB",
        "defaultGroupPerm": "SUB",
        "topicPerms": [f"{TOPIC}=DENY"],
    },
    {"accessKey": "elsewhere", "topicPerms": [f"{OTHER_TOPIC}=PUB|SUB"], "groupPerms": [f"{OTHER_GROUP}=SUB"]},
    {"accessKey": "white-listed", "whiteRemoteAddress": WHITE},
)
PLAIN_CALLERS: Final = (
    Caller("without credentials"),
    Caller("unknown account", Credentials("unknown-account", SECRET)),
    Caller("wrong secret", Credentials("publisher", "87654321")),
    Caller("without signature", unsigned={"AccessKey": "publisher"}),
    Caller("empty access key", unsigned={"AccessKey": "", "Signature": "x"}),
    Caller("at the account's address", source=WHITE, unsigned={"AccessKey": "white-listed"}),
    Caller("away from the account's address", unsigned={"AccessKey": "white-listed"}),
    Caller("at a global address", source=GLOBALLY_WHITE),
    *(signs(str(account["accessKey"])) for account in PLAIN_ACCOUNTS),
)

SUPER_USER: Final = Credentials("super-user", SECRET)
EVERYTHING: Final = ("Topic:*", "Group:*", "Cluster:*")
POLICIES: Final[Mapping[str, Sequence[bytes]]] = {
    "without-policies": (),
    "disabled-user": (policies("*", actions=("All",)),),
    "publisher": (policies(f"Topic:{TOPIC}", actions=("Pub",)),),
    "subscriber": (policies(f"Topic:{TOPIC}", f"Group:{GROUP}", actions=("Sub",)),),
    "topic-subscriber": (policies(f"Topic:{TOPIC}"),),
    "group-subscriber": (policies(f"Group:{GROUP}"),),
    "by-prefix": (policies("Topic:Al*", "Group:rea*", actions=("All",)),),
    "elsewhere": (policies(f"Topic:{OTHER_TOPIC}", f"Group:{OTHER_GROUP}", actions=("All",)),),
    "everything": (policies("*", actions=("All",)),),
    "reader": (policies(*EVERYTHING, actions=("Get", "List")),),
    "cluster-admin": (policies("Cluster:*", actions=("All",)),),
    "updater": (policies(*EVERYTHING, actions=("Update",)),),
    "creator": (policies(*EVERYTHING, actions=("Create", "Delete")),),
    "denied": (policies("Topic:*", "Group:*", actions=("All",)), policies(f"Topic:{TOPIC}", decision="Deny")),
    "denied-by-prefix": (policies(f"Topic:{TOPIC}"), policies("Topic:*", decision="Deny")),
    "from-afar": (policies(f"Topic:{TOPIC}", f"Group:{GROUP}", sourceIps=["10.0.0.0/8"]),),
    "from-here": (policies(f"Topic:{TOPIC}", f"Group:{GROUP}", sourceIps=["127.0.0.0/8"]),),
}
AUTH_CALLERS: Final = (
    Caller("without credentials"),
    Caller("unknown account", Credentials("unknown-account", SECRET)),
    Caller("wrong secret", Credentials("publisher", "87654321")),
    Caller("without signature", unsigned={"AccessKey": "publisher"}),
    Caller("empty access key", unsigned={"AccessKey": "", "Signature": "x"}),
    signs(SUPER_USER.access_key),
    *map(signs, POLICIES),
)

PLAIN, AUTH = "4.9.7", "5.3.3"
CALLERS: Final[Mapping[str, Sequence[Caller]]] = {PLAIN: PLAIN_CALLERS, AUTH: AUTH_CALLERS}
"""The callers by the version of RocketMQ whose access control they are for."""

SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    PLAIN: {"aclEnable": "true"},
    AUTH: {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps(dict(zip(("username", "password"), SUPER_USER, strict=True))),
    },
}
PROVIDERS: Final[Mapping[str, Mapping[str, object]]] = {
    PLAIN: {},
    AUTH: {
        "authenticationMetadataProvider": (
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "authorizationMetadataProvider": (
            "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
    },
}
"""Further settings that RocketMQ's own brokers need."""
ADMINISTRATOR: Final[Mapping[str, Credentials]] = {PLAIN: Credentials("administrator", SECRET), AUTH: SUPER_USER}


def plain_acl(accounts: Sequence[Mapping[str, object]] = PLAIN_ACCOUNTS) -> str:
    """Return the text of plain_acl.yml, as JSON, which is YAML."""
    complete = [{"secretKey": SECRET, **account} for account in accounts]
    return json.dumps({"globalWhiteRemoteAddresses": [GLOBALLY_WHITE], "accounts": complete})


def prepare(version: str, port: int) -> None:
    """Create the users of 5.3, a message in TOPIC, and the other topic. Raises AssertionError if one is refused."""
    requests: list[tuple[int, Mapping[str, object], bytes]] = [
        (17, creates_topic(TOPIC), b""),
        (17, creates_topic(OTHER_TOPIC), b""),
        (10, sends(TOPIC), b"first"),
    ]
    if version == AUTH:
        for user, bodies in POLICIES.items():
            requests.append((3001, {"username": user}, encoded({"password": SECRET})))
            requests += [(3006, {"subject": f"User:{user}"}, body) for body in bodies]
        requests.append((3002, {"username": "disabled-user"}, encoded({"userStatus": "disable"})))
    with closing(RawClient(LOOPBACK, port, WAIT_LIMIT_S, credentials=ADMINISTRATOR[version])) as client:
        for code, ext, body in requests:
            response = client.call(code, ext, body)
            assert response.code == 0, (code, ext, response)


class Cell(NamedTuple):
    """Code and remark of a response."""

    code: int
    remark: str | None


Table = dict[str, dict[str, Cell]]
"""The response to each request, by the name of the request and of the caller."""


def requests_for(version: str) -> list[Request]:
    """Return the requests of the table. Those that change accounts of the other generation are left out."""
    others = range(3001, 3011) if version == PLAIN else range(50, 55)
    return [request for request in REQUESTS if request.code not in others]


def responses(version: str, port: int, requests: Sequence[Request] = ()) -> Table:
    """Send the requests, by default all of the table, as every caller to the broker on a port. Return the responses."""
    requests = requests or requests_for(version)
    table: Table = {request.name: {} for request in requests}
    for caller in CALLERS[version]:
        with closing(caller.client(port)) as client:
            for request in requests:
                response = client.call(request.code, {**request.ext, **caller.unsigned}, request.body)
                table[request.name][caller.name] = Cell(response.code, response.remark)
    return table


def recorded(version: str) -> Table:
    """Return the table recorded from RocketMQ's own broker."""
    table: Table = {}
    for name, cells in json.loads(golden_file(version).read_text()).items():
        table[name] = {
            caller: Cell(cell["code"], cell["remark"] and cell["remark"].replace(ACCOUNT, account_of(version, caller)))
            for cell in cells
            for caller in cell["callers"]
        }
    return table


def record(version: str, table: Table) -> None:
    """Write a table. Callers with the same response share an entry; ACCOUNT stands for the account of each."""
    grouped = {}
    for name, cells in table.items():
        callers: dict[Cell, list[str]] = {}
        for caller, (code, remark) in cells.items():
            account = account_of(version, caller)
            general = remark and account and re.sub(rf"(?<![\w-]){re.escape(account)}(?![\w-])", ACCOUNT, remark)
            callers.setdefault(Cell(code, general or remark), []).append(caller)
        grouped[name] = [{**cell._asdict(), "callers": names} for cell, names in callers.items()]
    golden_file(version).write_text(json.dumps(grouped, indent=1, ensure_ascii=False) + "\n")


ACCOUNT: Final = "{account}"
ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"


def golden_file(version: str) -> Path:
    return GOLDEN / f"{version}.json"


def account_of(version: str, caller: str) -> str:
    """Return the access key that a caller sends, or an empty text."""
    [found] = [one for one in CALLERS[version] if one.name == caller]
    return found.credentials.access_key if found.credentials else found.unsigned.get("AccessKey", "")


def is_refusal(version: str, cell: Cell) -> bool:
    """Return whether access control has refused the request, or in 5.3 the change of a user or policy."""
    if version == PLAIN:
        return cell.code == 1 and (cell.remark or "").startswith(ACL_EXCEPTION)
    return cell.code == 16


def without_frame(version: str, cell: Cell) -> Cell:
    """Return the cell without the frame at the end of a remark of 4.9."""
    if version == PLAIN and cell.remark and is_refusal(version, cell):
        return cell._replace(remark=cell.remark.rpartition(", ")[0])
    return cell
