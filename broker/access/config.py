"""Settings of access control, quotas and the audit log."""

from pathlib import Path
from typing import Self

import msgspec

from skylarkmq.broker.base.errors import StartError
from skylarkmq.protocol import javajson


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of access control. Whitelists are request codes between commas."""

    acl_enable: bool = False  # access control of RocketMQ 4.9: plain_acl.yml and acl/*.yml
    acl_strict: bool = True  # also check requests that RocketMQ 4.9 leaves unchecked and that change anything
    acl_config_dir: Path = Path("conf")  # its directory; default: that of broker.conf, else storePathRootDir/conf
    authentication_enabled: bool = False  # authentication of RocketMQ 5.3
    authorization_enabled: bool = False  # authorization of RocketMQ 5.3
    authentication_whitelist: str = ""  # requests that need no signature
    authorization_whitelist: str = ""  # requests that need no permission
    init_authentication_user: str | None = None  # JSON of a super user that is created if its name is free
    inner_client_authentication_credentials: str | None = None  # JSON of the broker's own super user and secret key
    migrate_auth_from_v1_enabled: bool = False  # accounts of plain_acl.yml become users at the start


class QuotaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Quotas; 0: no quota. A client is an IP address. All settings are ours."""

    quota_client_requests_per_second: int = 0  # requests of one client per second
    quota_client_bytes_in_per_second: int = 0  # bodies and header fields of requests
    quota_client_bytes_out_per_second: int = 0  # all bytes written to the client's connections
    quota_client_connections: int = 0  # connections of one client at a time
    quota_client_parked_pulls: int = 0  # parked pulls of one client at a time
    quota_account_requests_per_second: int = 0  # requests of one account per second
    quota_account_bytes_in_per_second: int = 0  # bodies and header fields of requests
    quota_account_bytes_out_per_second: int = 0  # all bytes written to the account's connections
    quota_account_connections: int = 0  # connections of one account at a time
    quota_account_topics: int = 0  # existing topics that the account has created
    quota_account_groups: int = 0  # existing groups that the account has created
    quota_topic_requests_per_second: int = 0  # sends and pulls
    quota_topic_bytes_in_per_second: int = 0  # sends and pulls
    quota_topic_bytes_out_per_second: int = 0  # records in responses to pulls
    quota_burst_mills: int = 200  # an unused quota accumulates for this time, and may then be used at once
    quota_max_wait_mills: int = 1_000  # a request that would wait longer is refused


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log. All settings are ours."""

    audit_log: Path | None = None  # a file, or `journald`; None: no audit log
    audit_log_max_bytes: int = 64 << 20  # a file of this size is renamed, and a new one begins
    audit_log_files: int = 8  # number of files, including the current one; the oldest is deleted
    audit_sample_one_in: int = 0  # one in this many requests that change nothing is recorded; 0: none


class Credentials(msgspec.Struct, frozen=True):
    """An access key and its secret key, which is never part of a `repr`."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"<Credentials {self.access_key}>"

    @classmethod
    def parse(cls, text: str | None, key: str, access_key: str, secret_key: str) -> Self | None:
        """Return the credentials in the value of the setting `key`: JSON with these two members.

        An empty value gives None. Raises StartError, without a part of the value.
        """
        if not text:
            return None
        try:
            members = javajson.loads(text)
        except ValueError:
            members = None
        if isinstance(members, dict):
            access, secret = members.get(access_key), members.get(secret_key)
            if isinstance(access, str) and isinstance(secret, str) and access.strip() and secret.strip():
                return cls(access, secret)
        raise StartError(f'{key}: expected JSON such as {{"{access_key}":"admin","{secret_key}":"a secret"}}')


def initial_user(config: AccessConfig) -> Credentials | None:
    """Return the credentials of `initAuthenticationUser`. Raises StartError if they are invalid."""
    return Credentials.parse(config.init_authentication_user, "initAuthenticationUser", "username", "password")


def inner_client_credentials(config: AccessConfig) -> Credentials | None:
    """Return `innerClientAuthenticationCredentials`: the broker's own, as a client of other brokers and of name
    servers. Raises StartError if they are invalid."""
    text, key = config.inner_client_authentication_credentials, "innerClientAuthenticationCredentials"
    return Credentials.parse(text, key, "accessKey", "secretKey")


def check_access(config: AccessConfig) -> None:
    """Check that the settings of access control are valid together. Raises StartError."""
    if config.acl_enable and (config.authentication_enabled or config.authorization_enabled):
        raise StartError("aclEnable=true: expected false, authenticationEnabled or authorizationEnabled is true")
    if config.authorization_enabled and not config.authentication_enabled:
        raise StartError(
            "authorizationEnabled=true: expected authenticationEnabled=true, otherwise a client may use any user's name"
        )
    if config.migrate_auth_from_v1_enabled and not config.authentication_enabled:
        raise StartError(
            "migrateAuthFromV1Enabled=true: expected authenticationEnabled=true, because there are no users without it"
        )
    initial_user(config)
    inner_client_credentials(config)
