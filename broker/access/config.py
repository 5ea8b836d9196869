"""Settings of access control, quotas and the audit log."""

import msgspec


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of access control."""

    acl_enable: bool = False  # access control of RocketMQ 4.9: plain_acl.yml and acl/*.yml
    acl_strict: bool = True  # with it, requests that RocketMQ 4.9 leaves unchecked and that change anything are checked
    authentication_enabled: bool = False  # authentication of RocketMQ 5.3
    authorization_enabled: bool = False  # authorization of RocketMQ 5.3


class QuotaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Quotas."""


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log."""
