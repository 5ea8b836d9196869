"""The audit log: which caller sent which request, and the result.

An entry is recorded for
    each refusal by access control, by a network rule or by a quota           event `refused`
    each request that changes the cluster or its accounts, with its response  event `admin`
    one in n other requests (`auditSampleOneIn` is n), as it is admitted           event `request`

The entry of an administrative request is written with its response, which may come after an await; until then it is in
`_open`. A request whose response never comes (the process stops meanwhile) is recorded at the stop, without a result.

An entry contains names of resources, never the request: no body, no properties, no credentials. Names are cut at
NAME_CHARACTERS, remarks at REMARK_CHARACTERS. Source: docs/reference/behaviour.md, "Audit log".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from skylarkmq.broker.access.audit_sinks import Entry, FileSink, JournalSink, Sink
from skylarkmq.broker.access.audit_writer import AuditStatistics, AuditWriter
from skylarkmq.broker.access.caller import Caller
from skylarkmq.broker.access.config import AuditConfig
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.stats import TopicConfigList
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError

JOURNAL: Final = "journald"
NAME_CHARACTERS: Final = 255
REMARK_CHARACTERS: Final = 1_000
MAX_NAMES: Final = 20
MAX_OPEN: Final = 4_096
"""Administrative requests that wait for their response; beyond, the oldest is recorded without a result."""

NAMES: Final = {
    "topic": "topic",
    "consumerGroup": "group",
    "group": "group",
    "groupName": "group",
    "producerGroup": "group",
    "brokerName": "broker",
    "username": "user",
    "accessKey": "user",
    "subject": "subject",
    "namespace": "namespace",
    "key": "key",
}
"""Ext fields that name a resource, and the members of an entry that contain their values."""
SEND_NAMES: Final = {"a": "group", "b": "topic"}
"""The same in sends with one-letter names."""
SHORT_SENDS: Final = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)
REQUEST_NAMES: Final[Mapping[int, str]] = {code: code.name for code in RequestCode}
ACCOUNT_CODES: Final = frozenset((*range(50, 55), *range(3001, 3011)))
"""Requests for accounts and permissions, including reads: RocketMQ 4.9's, then 5.3's."""
SECRET_REMARKS: Final = frozenset((RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,))
"""Requests whose remark may contain a secret key: RocketMQ's remark for a key that is too short does."""
ROUTINE_CODES: Final = frozenset((RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT))
"""Requests that brokers repeat every few seconds; they count as other requests."""
RESPONSE_NAMES: Final[Mapping[int, str]] = {code: code.name for code in ResponseCode}

_KEY: Final = re.compile(r"([A-Za-z][\w.]*)\s*(?:[=:]|$)")


class AuditLog:
    """Observes the requests of a gate. `now_ns` returns Unix time."""

    def __init__(self, config: AuditConfig, now_ns: Callable[[], int], sink: Sink | None = None) -> None:
        self._now_ns = now_ns
        self._writer = AuditWriter(sink or sink_of(config), self._lost_entry)
        self._open: dict[int, tuple[RemotingCommand, dict[str, str | int]]] = {}
        self._admitted = 0  # other requests since the last one that was sampled
        self._one_in = config.audit_sample_one_in

    def __repr__(self) -> str:
        return f"<AuditLog one in {self._one_in} {self._writer!r}>"

    def sample(self, one_in: int) -> None:
        """Record one in so many requests that change nothing from now on; 0: none of them."""
        self._one_in = one_in

    def statistics(self) -> AuditStatistics:
        """Return the current figures."""
        return self._writer.statistics()

    @property
    def checks_data(self) -> bool:
        """Return whether sends and pulls are recorded, too."""
        return self._one_in > 0

    def start(self) -> None:
        """Start the writer thread."""
        self._writer.start()

    async def stop(self) -> None:
        """Record the requests without a response, and write everything."""
        for _, entry in self._open.values():
            self._writer.put(entry)
        self._open.clear()
        await self._writer.stop()

    # ------------------------------------------------------------------------------------------------- called by a gate

    def refused(
        self,
        source: RequestSource,
        command: RemotingCommand,
        _requirement: Requirement,
        caller: Caller,
        error: RequestError,
    ) -> None:
        """Record a refusal."""
        entry = self._entry("refused", source, command, caller)
        if not caller.account:
            entry |= claimed_account(command)
        self._writer.put(entry | result_of(error.code, error.remark))

    def served(self, source: RequestSource, command: RemotingCommand, requirement: Requirement, caller: Caller) -> None:
        """Begin the entry of an administrative request, and record a sample of all others."""
        if is_administrative(requirement):
            if len(self._open) >= MAX_OPEN:
                _, oldest = self._open.pop(next(iter(self._open)))
                self._writer.put(oldest)
            entry = self._entry("admin", source, command, caller) | names_in_body(command)
            self._open[id(command)] = command, entry
        elif self._one_in:
            self._admitted += 1
            if self._admitted >= self._one_in:
                self._admitted = 0
                self._writer.put(self._entry("request", source, command, caller))

    def responded(self, command: RemotingCommand, response: RemotingCommand) -> None:
        """Record an administrative request with its result."""
        opened = self._open.pop(id(command), None) if self._open else None
        if opened is not None:
            remark = None if command.code in SECRET_REMARKS else response.remark
            self._writer.put(opened[1] | result_of(response.code, remark))

    # ---------------------------------------------------------------------------------------------------------- entries

    def _entry(
        self, event: str, source: RequestSource, command: RemotingCommand, caller: Caller
    ) -> dict[str, str | int]:
        entry: dict[str, str | int] = {
            "time": time_text(self._now_ns()),
            "event": event,
            "account": caller.account,
            "proof": caller.proof.value,
            "address": source.peer,
        }
        if certificate := source.certificate_subject:
            entry["certificate"] = certificate[:NAME_CHARACTERS]
        entry["code"] = command.code
        entry["request"] = REQUEST_NAMES.get(command.code, "")
        return entry | resource_names(command)

    def _lost_entry(self, count: int) -> Entry:
        return {"time": time_text(self._now_ns()), "event": "lost", "entries": count}


def sink_of(config: AuditConfig) -> Sink:
    """Return the place that `auditLog` names."""
    if config.audit_log is None:
        raise ValueError("auditLog is not set")
    if str(config.audit_log) == JOURNAL:
        return JournalSink()
    return FileSink(config.audit_log, config.audit_log_max_bytes, config.audit_log_files)


def is_administrative(requirement: Requirement) -> bool:
    """Return whether each request with this requirement is recorded."""
    if requirement.code in ROUTINE_CODES:
        return False
    return requirement.changes or requirement.code in ACCOUNT_CODES


def time_text(now_ns: int) -> str:
    """Return a Unix time as ISO 8601 text in UTC with milliseconds."""
    seconds, rest = divmod(now_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def resource_names(command: RemotingCommand) -> dict[str, str | int]:
    """Return the resources that the header of a request names."""
    try:
        fields = command.ext_fields()
    except ProtocolError:
        return {}
    names = SEND_NAMES if command.code in SHORT_SENDS and "b" in fields else NAMES
    return {member: fields[name][:NAME_CHARACTERS] for name, member in names.items() if fields.get(name)}


def names_in_body(command: RemotingCommand) -> dict[str, str | int]:
    """Return the resources that the body of an administrative request names: groups, topics, or keys of settings."""
    try:
        match command.code:
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                return joined("group", [SubscriptionGroupConfig.decode_request(command.body).group_name])
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
                groups = SubscriptionGroupList.decode_request(command.body).group_config_list
                return joined("groups", [group.group_name for group in groups])
            case RequestCode.UPDATE_AND_CREATE_TOPIC_LIST:
                topics = TopicConfigList.decode_request(command.body).topic_config_list
                return joined("topics", [topic.topic_name for topic in topics])
            case RequestCode.UPDATE_BROKER_CONFIG | RequestCode.UPDATE_NAMESRV_CONFIG:
                return joined("settings", setting_keys(str(command.body, "utf-8", "replace")))
            case _:
                return {}
    except BodyError:
        return {}


def joined(member: str, names: Sequence[str]) -> dict[str, str | int]:
    """Return a member with the first names, and their number if there are more."""
    shown = ",".join(name[:NAME_CHARACTERS] for name in names[:MAX_NAMES])
    return {member: shown} if len(names) <= MAX_NAMES else {member: shown, f"{member}Count": len(names)}


def setting_keys(text: str) -> list[str]:
    """Return the keys of a properties text. Values, which may continue on later lines, are left out."""
    keys = []
    is_continued = False
    for line in text.splitlines():
        if not is_continued and (key := _KEY.match(line.strip())):
            keys.append(key[1])
        is_continued = line.endswith("\\")
    return keys


def claimed_account(command: RemotingCommand) -> dict[str, str | int]:
    """Return the account that a refused request names without a proof."""
    try:
        claimed = command.ext_fields().get("AccessKey", "")
    except ProtocolError:
        return {}
    return {"claimedAccount": claimed[:NAME_CHARACTERS]} if claimed else {}


def result_of(code: int, remark: str | None) -> dict[str, str | int]:
    """Return the members for a response code and its remark."""
    members: dict[str, str | int] = {"result": RESPONSE_NAMES.get(code, str(int(code)))}
    if remark:
        members["remark"] = remark[:REMARK_CHARACTERS]
    return members
