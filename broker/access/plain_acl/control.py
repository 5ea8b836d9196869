"""The decision about a request, in RocketMQ's order.

    1. an address in a global list of white addresses may do everything
    2. no AccessKey, and no client certificate with an account: `No accessKey is configured`
    3. unknown account: `No acl config for KEY`
    4. the white address of the account may do everything
    5. signature: `Check signature failed for accessKey=KEY`
    6. sends to the topic of traces are permitted
    7. requests of administrators: `Need admin permission for request code=CODE, but accessKey=KEY is not`
    8. permissions on topics and groups: `No default permission for topic:T` or `group:G`

A refusal is SYSTEM_ERROR (1). The signature of an unknown account is verified with a random key, so steps 3 and 5 do
the same work. Decisions of steps 6 to 8 are cached by account, code and names until the rules change; the result of a
signature is never cached. A send that is like the last permitted one, in all but its message, needs only step 5.

If several permissions are missing, RocketMQ names the first one in the order of a Java HashMap; so does the remark.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.decision_cache import DecisionCache
from skylarkmq.broker.access.message_rights import Rights, all_rights
from skylarkmq.broker.access.permitted_send import PermittedSend, permitted_send
from skylarkmq.broker.access.plain_acl.accounts import Account, shown_resource
from skylarkmq.broker.access.plain_acl.addresses import Address, address_of
from skylarkmq.broker.access.plain_acl.files import Rules
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.broker.access.requests.needs import FromFields, Needs, Permission
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RETRY_PREFIX, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.signature import ACCESS_KEY, SigningKey, signed_parts

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
PERMISSIONS_OF: Final = {Action.PUB: Permission.PUB, Action.SUB: Permission.SUB}
REMARK_CLASS: Final = "org.apache.rocketmq.acl.common.AclException"
REMARK_FRAME: Final = "skylarkmq.broker.access.plain_acl.control"
"""In RocketMQ the first line of a stack trace, which differs between its versions."""
MOST_ORDERED_CHARACTERS: Final = 16_384
"""Hashing these takes 2 ms. In a longer request the first missing permission belongs to the first name."""
MOST_ADDRESSES: Final = 4_096
UNDECIDED: Final = ""
WHITE: Final = Caller(proof=Proof.WHITE_ADDRESS, is_admin=True)


Names = tuple[str | None, str | None]
Key = tuple[str, int, Names]
"""The topic and the group of a request."""


class PlainAclStatistics(msgspec.Struct, frozen=True):
    """`refused`: requests by the step that refused them, since the start. `broken_files`: files with an error."""

    refused: dict[str, int]
    accounts: int
    reloads: int
    broken_files: int


class PlainAclControl:
    """Decides about requests by the rules of `files`. `certificates`: the accounts of client certificates, which need
    no signature. `is_strict`: `aclStrict`."""

    checks_data = True

    def __init__(self, files: ReloadedFiles, certificates: CertificateAccounts, *, is_strict: bool) -> None:
        self._files = files
        self._certificates = certificates
        self._is_strict = is_strict
        self._unknown = Account("", SigningKey(secrets.token_hex()), ANONYMOUS)
        self._rules = files.rules
        self._decisions: DecisionCache[Key, str | None] = DecisionCache()
        self._last: PermittedSend | None = None
        self._addresses: dict[str, tuple[Address, bool]] = {}
        self._refused = {"access_key": 0, "account": 0, "signature": 0, "permission": 0}

    def __repr__(self) -> str:
        return f"<PlainAclControl {'strict' if self._is_strict else '4.9'} {self._rules!r}>"

    def statistics(self) -> PlainAclStatistics:
        """Return the current figures."""
        files = self._files.statistics()
        return PlainAclStatistics(dict(self._refused), len(self._files.rules.accounts), files.reloads, files.broken)

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller of a permitted request. Raises RequestError(SYSTEM_ERROR) with RocketMQ's remark
        otherwise."""
        rules = self._files.rules
        if rules is not self._rules:
            self._forget(rules)
        last = self._last
        if last is not None and last.host == source.host:
            is_signed = last.has_signed(command)
            if is_signed:
                return last.caller
            if is_signed is False:
                raise self._refusal("signature", f"Check signature failed for accessKey={last.access_key}")
        return self._check(source, command, requirement)

    def admit_alike(
        self, source: RequestSource, commands: Sequence[RemotingCommand], at: int, end: int
    ) -> tuple[int, Caller]:
        """Return how many requests from `at` on, before `end`, are like the last permitted send and have the signature
        of its account, and their caller."""
        last = self._last
        if last is None or self._files.rules is not self._rules:
            return 0, ANONYMOUS
        return last.count_signed(source, commands, at, end), last.caller

    def _check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Check a request that is not like the last permitted send."""
        address, is_white = self._addresses.get(source.host) or self._locate(source.host)
        if is_white:
            return WHITE
        signed = signed_parts(command)
        if signed is None:
            return self._check_certificate(source, command, requirement)
        known = self._rules.accounts.get(signed.access_key)
        account = self._unknown if known is None else known
        if account.white(address):
            return Caller(account.access_key, Proof.WHITE_ADDRESS, is_admin=True)
        is_signed = account.key.has_signed(signed, command.body)
        if known is None:
            raise self._refusal("account", f"No acl config for {signed.access_key}")
        if not is_signed:
            raise self._refusal("signature", f"Check signature failed for accessKey={signed.access_key}")
        problem = self._decide(account, command, requirement)
        if problem is not None:
            raise self._refusal("permission", problem)
        permitted = permitted_send(source, command, account.access_key, account.key, account.caller)
        self._last = permitted or self._last
        return account.caller

    def _check_certificate(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller of a request without an AccessKey: the account of its client certificate."""
        name = self._certificates.account_of(source)
        if name is None:
            raise self._refusal("access_key", "No accessKey is configured")
        account = self._rules.accounts.get(name)
        if account is None:
            raise self._refusal("account", f"No acl config for {name}")
        problem = self._decide(account, command, requirement)
        if problem is not None:
            raise self._refusal("permission", problem)
        return Caller(name, Proof.CERTIFICATE, account.is_admin)

    def rights_of(self, source: RequestSource, command: RemotingCommand) -> Rights:
        """Return the rights of the account of an admitted request. Without `aclStrict` every caller has all of them, as
        in 4.9. A request from a white address proves no account, so its rights end with the white address."""
        if not self._is_strict:
            return all_rights
        name, host = self._name_of(source, command) or "", source.host
        return partial(self._permits, name, host, not self._is_white(name, host))

    def _permits(self, name: str, host: str, is_proven: bool, topic: str, action: Action) -> bool:
        """Return whether an account may do `action` with a message of `topic`. Reads by offset are free, as in 4.9."""
        needed = PERMISSIONS_OF.get(action)
        if needed is None or self._is_white(name, host):
            return True
        account = self._rules.accounts.get(name) if is_proven else None
        if account is None:
            return False
        return (account.is_admin and account.permissions is None) or account.may(topic, needed)

    def _is_white(self, name: str, host: str) -> bool:
        """Return whether requests of this account from this host need no signature."""
        address, is_white = self._located(host)
        account = self._rules.accounts.get(name)
        return is_white or (account is not None and account.white(address))

    def _name_of(self, source: RequestSource, command: RemotingCommand) -> str | None:
        """Return the account of an admitted request."""
        access_key = command.ext_fields().get(ACCESS_KEY)
        return self._certificates.account_of(source) if access_key is None else access_key

    def _located(self, host: str) -> tuple[Address, bool]:
        """Return the address of a host, and whether it is in a global list; make changed rules the current ones."""
        rules = self._files.rules
        if rules is not self._rules:
            self._forget(rules)
        return self._addresses.get(host) or self._locate(host)

    def _forget(self, rules: Rules) -> None:
        """Forget the decisions of earlier rules."""
        self._rules = rules
        self._last = None
        self._decisions.clear()
        self._addresses.clear()

    def _locate(self, host: str) -> tuple[Address, bool]:
        if len(self._addresses) >= MOST_ADDRESSES:
            self._addresses.clear()
        address = address_of(host)
        located = self._addresses[host] = (address, self._rules.is_white(address))
        return located

    def _refusal(self, step: str, text: str) -> RequestError:
        self._refused[step] += 1
        return RequestError(ResponseCode.SYSTEM_ERROR, f"{REMARK_CLASS}: {text}, {REMARK_FRAME}")

    # -------------------------------------------------------------------------------------------------------- decisions

    def _decide(self, account: Account, command: RemotingCommand, requirement: Requirement) -> str | None:
        """Return the reason to refuse a proven account's request, or None."""
        need, sent = requirement.need, command.send_header
        check = need.strict if self._is_strict else need.basic
        if sent is not None and not sent.topic.startswith(RETRY_PREFIX):
            names: Names = (sent.topic, None)  # the group of a send counts only for a retry topic
        elif isinstance(check, FromFields):
            names = check.names(command)
        else:
            return self._problem(account, requirement, {} if check is None else check(command.body))
        key = (account.access_key, requirement.code, names)
        problem = self._decisions.get(key, UNDECIDED)
        if problem is UNDECIDED:
            needs = check.rule(*names, self._is_strict) if isinstance(check, FromFields) else {}
            problem = self._problem(account, requirement, needs)
            self._decisions.remember(key, problem, names)
        return problem

    def _problem(self, account: Account, requirement: Requirement, needs: Needs) -> str | None:
        if needs.get(TRACE_TOPIC) == Permission.PUB:
            return None
        code = requirement.code
        needs_admin = requirement.need.admin or (self._is_strict and requirement.changes)
        if needs_admin and not account.is_admin:
            return f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
        if account.is_admin and account.permissions is None:
            return None
        missing = [resource for resource, needed in needs.items() if not account.may(resource, needed)]
        if not missing:
            return None
        first = missing[0]
        if len(missing) > 1 and sum(map(len, needs)) <= MOST_ORDERED_CHARACTERS:
            first = next(resource for resource in bucket_order(needs) if resource in set(missing))
        return f"No default permission for {shown_resource(first)}"
