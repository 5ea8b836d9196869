"""Quotas and the audit log of a broker, wired from its configuration.

`AccessControl` (security.py) builds its gates with them, and again whenever a setting changes which checks a gate needs
(`on_change`). Without quotas and without an audit log a gate checks nothing here.
"""

import time
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.access.audit import AuditLog
from skylarkmq.broker.access.config import AuditConfig, QuotaConfig
from skylarkmq.broker.access.counted_quotas import CountedQuotas
from skylarkmq.broker.access.created_names import CreatedNames
from skylarkmq.broker.access.created_names import decode as decode_created_names
from skylarkmq.broker.access.gate import Pacing, Restriction
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.quotas import Quotas
from skylarkmq.broker.app.sections.table_files import Kept
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.remoting.selector import Selector

CREATED_NAMES_FILE: Final = "createdNames.json"


class ClientQuotas:
    """The quotas by client address of one port: requests and bytes per second, and connections at a time."""

    def __init__(self, config: QuotaConfig, refusals: Refusals) -> None:
        self.quotas = Quotas(of_clients(config), refusals, time.monotonic_ns)
        self._counted = CountedQuotas(of_clients(config), refusals)
        self.may_open = self._counted.may_open

    def __repr__(self) -> str:
        return f"<ClientQuotas {self.quotas!r} {self._counted!r}>"

    def attach(self, selector: Selector) -> None:
        """Follow the closed connections of a port that was made with `may_open`."""
        selector.registry.on_close(self._counted.closed)
        selector.registry.on_close(self.quotas.forget)

    def configure(self, config: QuotaConfig) -> None:
        """Apply these quotas from now on."""
        self.quotas.configure(of_clients(config))
        self._counted.configure(of_clients(config))

    def pacing(self) -> Pacing | None:
        """Return the quotas per second; None if there are none."""
        return self.quotas if self.quotas.is_active else None


def of_clients(config: QuotaConfig) -> QuotaConfig:
    """Return the quotas by client address only."""
    return QuotaConfig(
        quota_client_requests_per_second=config.quota_client_requests_per_second,
        quota_client_bytes_in_per_second=config.quota_client_bytes_in_per_second,
        quota_client_bytes_out_per_second=config.quota_client_bytes_out_per_second,
        quota_client_connections=config.quota_client_connections,
        quota_burst_mills=config.quota_burst_mills,
        quota_max_wait_mills=config.quota_max_wait_mills,
    )


class UsageControl:
    """The quotas and the audit log of one broker.

    `delivered` returns the bytes that a group has received from a topic. `namesrv`: the quotas of the port of the
    embedded name server. `audit` None: there is no audit log.
    """

    def __init__(self, quotas: QuotaConfig, audit: AuditConfig, delivered: Callable[[str, str], int]) -> None:
        self._config = quotas
        self.audit = audit_log_of(audit)
        self.refusals = Refusals()
        self.quotas = Quotas(quotas, self.refusals, time.monotonic_ns, delivered)
        self.counted = CountedQuotas(quotas, self.refusals)
        self.created = CreatedNames(quotas, self.refusals)
        self.namesrv = ClientQuotas(quotas, self.refusals)
        self._arrivals: Arrivals | None = None
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<UsageControl {self.quotas!r} {self.audit!r}>"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when gates may need other checks."""
        self._listeners.append(listener)

    def restrictions(self) -> list[Restriction]:
        """Return the restrictions that the current quotas need."""
        restrictions: list[Restriction] = []
        if self._config.quota_account_connections:
            restrictions.append(self.counted)
        if self.created.is_active:
            restrictions.append(self.created)
        return restrictions

    def pacing(self) -> Pacing | None:
        """Return the quotas per second; None if there are none."""
        return self.quotas if self.quotas.is_active else None

    def kept(self) -> list[Kept]:
        """Return the table that is loaded before the start and saved when it changes."""
        return [Kept(self.created, CREATED_NAMES_FILE, decode_created_names)]

    def attach(self, selector: Selector, name_server: NameServer | None, tables: Tables, arrivals: Arrivals) -> None:
        """Count what clients use. Both ports were made with `may_open`. `name_server`: the embedded one, if there is
        one."""
        if name_server is not None:
            self.namesrv.attach(name_server.remoting.selector)
        self._arrivals = arrivals
        selector.registry.on_close(self.counted.closed)
        selector.registry.on_close(self.quotas.forget)
        tables.topics.on_delete(self.created.topics.forget)
        tables.topics.on_delete(self.quotas.forget_topic)
        tables.groups.on_delete(self.created.groups.forget)
        self.configure(self._config)

    def configure(self, config: QuotaConfig) -> None:
        """Apply these quotas from now on."""
        self._config = config
        for part in (self.quotas, self.counted, self.created, self.namesrv):
            part.configure(config)
        if self._arrivals is not None:
            self._arrivals.limit(self.counted if config.quota_client_parked_pulls else None)
        self._changed()

    def sample(self, one_in: int) -> None:
        """Change which requests that change nothing are recorded."""
        if self.audit is not None:
            self.audit.sample(one_in)
            self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def start(self) -> None:
        """Start the writer of the audit log."""
        if self.audit is not None:
            self.audit.start()

    async def stop(self) -> None:
        """Write the rest of the audit log."""
        if self.audit is not None:
            await self.audit.stop()


def audit_log_of(config: AuditConfig) -> AuditLog | None:
    """Return the audit log of a daemon, or None."""
    return None if config.audit_log is None else AuditLog(config, time.time_ns)
