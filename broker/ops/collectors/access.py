"""Metrics of access control."""

from typing import Final

from skylarkmq.broker.access.auth.control import AuthControl, AuthStatistics
from skylarkmq.broker.access.plain_acl.control import PlainAclControl, PlainAclStatistics
from skylarkmq.broker.ops.steps import Steps, Value

NO_USERS: Final = AuthStatistics(refused={}, users=0, subjects=0)
NONE: Final = PlainAclStatistics(refused={}, accounts=0, reloads=0, broken_files=0)


class PlainAclCollector:
    """Metrics of the access control of RocketMQ 4.9; zero without it."""

    def __init__(self, control: PlainAclControl | None) -> None:
        self._control = control

    def __repr__(self) -> str:
        return f"<PlainAclCollector {self._control!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        figures = NONE if self._control is None else self._control.statistics()
        yield Value("skylark_acl_accounts", (), figures.accounts)
        yield Value("skylark_acl_broken_files", (), figures.broken_files)
        yield Value("skylark_acl_reloads_total", (), figures.reloads)
        for step, count in figures.refused.items():
            yield Value("skylark_acl_refused_total", (step,), count)


class AuthCollector:
    """Metrics of the access control of RocketMQ 5.3; zero without it."""

    def __init__(self, control: AuthControl | None) -> None:
        self._control = control

    def __repr__(self) -> str:
        return f"<AuthCollector {self._control!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        figures = NO_USERS if self._control is None else self._control.statistics()
        yield Value("skylark_auth_users", (), figures.users)
        yield Value("skylark_auth_subjects", (), figures.subjects)
        for step, count in figures.refused.items():
            yield Value("skylark_auth_refused_total", (step,), count)
