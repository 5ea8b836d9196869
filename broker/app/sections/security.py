"""The access control of a daemon, wired from its configuration: the gates, and the processors that manage accounts."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from skylarkmq.broker.access.accounts import Accounts, AccountsFile, AnyOf, Passwords, own_credentials, table_of
from skylarkmq.broker.access.audit import AuditLog
from skylarkmq.broker.access.auth.control import AuthControl
from skylarkmq.broker.access.auth.migration import migrate, plain_accounts
from skylarkmq.broker.access.auth.policies import ACLS_FILE, Acls, decode_acls
from skylarkmq.broker.access.auth.requests import AuthRequests, NoUsers, Saved
from skylarkmq.broker.access.auth.users import USERS_FILE, User, Users, UserType, decode_users
from skylarkmq.broker.access.certificates import CertificateAccounts, CertificateControl
from skylarkmq.broker.access.config import AccessConfig, Credentials, initial_user, inner_client_credentials
from skylarkmq.broker.access.console_accounts import console_accounts
from skylarkmq.broker.access.exposure import Exposure, Listener
from skylarkmq.broker.access.gate import Control, Gate
from skylarkmq.broker.access.message_rights import AllMessages, MessageRights
from skylarkmq.broker.access.namesrv_control import NamesrvControl
from skylarkmq.broker.access.networks import AdminNetworks
from skylarkmq.broker.access.plain_acl.control import PlainAclControl
from skylarkmq.broker.access.plain_acl.daemon_accounts import AclAccounts
from skylarkmq.broker.access.plain_acl.files import AclFiles, paths_in
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.secret_files import SecretFiles
from skylarkmq.broker.app.sections.addresses import advertised_address
from skylarkmq.broker.app.sections.registering import Pools, Serves, register
from skylarkmq.broker.app.sections.table_files import Kept
from skylarkmq.broker.app.sections.usage import ClientQuotas, UsageControl
from skylarkmq.broker.base.address_ranges import is_loopback
from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.sections import DaemonConfig, NamesrvDaemonConfig, OpsConfig
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.ops.pages.page_auth import PageAccounts
from skylarkmq.broker.processors.admin.acl import AclProcessor, Broker
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.disk import CONFIG_DIRECTORY
from skylarkmq.protocol.signature import Signer


class AccessControl:
    """The access control of one broker and of its embedded name server. Raises StartError for unusable files, and for
    settings that contradict each other.

    `new_gate` and `new_namesrv_gate` return the gates of their requests, which also check `usage`. `signer` signs the
    broker's own requests to name servers; None: they are not signed. `page_accounts` may read the metrics page; None:
    it needs no account. `console_accounts` log in to the console; None: it needs no login. `plain_acl` and `auth`: the
    access control of RocketMQ 4.9 and of 5.3; None: it is off. `saved` waits until a file of `kept` contains every
    change.
    """

    def __init__(self, config: DaemonConfig, usage: UsageControl, saved: Saved) -> None:
        security, tls, listen = config.security, config.tls, config.listen
        self._config = config
        self._usage = usage
        self._saved = saved
        self._kept: list[Kept] = []
        self._processors: list[tuple[str, Serves]] = []
        self._pages: list[Passwords] = []
        accounts_file = None if security.accounts_file is None else AccountsFile(security.accounts_file)
        certificates = CertificateAccounts(security.tls_auth_mapping)
        self._networks = AdminNetworks(security.admin_allowed_networks)
        self.auth: AuthControl | None = None
        self._auth_tables: tuple[Users, Acls] | None = None
        self._plain_files: ReloadedFiles | None = None
        self.plain_acl: PlainAclControl | None = None
        self.message_rights: MessageRights = AllMessages()
        control = self._control(certificates)
        own_files = (security.accounts_file, tls.key_path, config.outbound_tls.key_path)
        self.secret_files = SecretFiles(
            (*security.secret_files, *own_files, *self._user_files()),
            self._plain_paths,
            is_strict=security.strict_secret_files,
        )
        self._broker_control = control or CertificateControl(certificates)
        self._namesrv_control: NamesrvControl | None = None
        credentials = self._credentials()
        self.signer = None if credentials is None else Signer(credentials.access_key, credentials.secret_key)
        listeners = [Listener("broker", listen.bind_host, needs_account=control is not None)]
        if config.namesrv is not None:
            own = () if credentials is None else (table_of(credentials),)
            sources: list[Accounts] = [*own, *(() if accounts_file is None else (accounts_file,))]
            self._namesrv_control = NamesrvControl(
                AnyOf(sources), certificates, time.monotonic, is_required=security.namesrv_auth, broker_control=control
            )
            listeners.append(Listener("name_server", config.namesrv.bind_address, needs_account=security.namesrv_auth))
        if config.replication.serves_slaves:
            listeners.append(Listener("replicas", listen.bind_host, needs_account=False, has_tls=False))
        self.exposure = Exposure(tls, *listeners)
        pages = [*self._pages, *(() if accounts_file is None else (accounts_file,))]
        self.page_accounts = page_accounts(config.ops, pages, certificates)
        self.console_accounts = console_accounts(config.console.host, config.console.port, pages)

    def __repr__(self) -> str:
        return f"<AccessControl {self._broker_control!r} {self._usage!r}>"

    def new_gate(self) -> Gate:
        """Return a gate for the requests of the broker, with the checks that the current settings need."""
        usage = self._usage
        return Gate(self._broker_control, [self._networks, *usage.restrictions()], usage.audit, usage.pacing())

    def new_namesrv_gate(self) -> Gate | None:
        """Return a gate for the requests of the embedded name server, with the checks that the current settings need;
        None without a name server."""
        usage, control = self._usage, self._namesrv_control
        return None if control is None else Gate(control, [self._networks], usage.audit, usage.namesrv.pacing())

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        register(dispatcher, pools, self._processors)

    def attach(self, dispatcher: Dispatcher, name_server: NameServer | None) -> None:
        """Check requests with new gates when settings change which checks they need."""

        def use_gates() -> None:
            dispatcher.guard = self.new_gate()
            if name_server is not None:
                name_server.remoting.dispatcher.guard = self.new_namesrv_gate()

        self._usage.on_change(use_gates)
        use_gates()

    def start(self, running: AsyncExitStack) -> None:
        """Migrate accounts of RocketMQ 4.9, if that is set. Reload their changed files until `running` ends."""
        if self._auth_tables is not None and self._config.access.migrate_auth_from_v1_enabled:
            migrate(plain_accounts(self._config.access.acl_config_dir), *self._auth_tables)
        if self._plain_files is not None:
            self._plain_files.start()
            running.push_async_callback(self._plain_files.stop)

    def kept(self) -> list[Kept]:
        """Return the tables with secrets that are loaded before the start and saved when they change."""
        return self._kept

    def _control(self, certificates: CertificateAccounts) -> Control | None:
        """Return the generation of RocketMQ's access control that is on."""
        if self._config.access.authentication_enabled:
            return self._auth_control(certificates)
        self._processors.append(("admin", NoUsers()))
        return self._plain_control(certificates) if self._config.access.acl_enable else None

    def _user_files(self) -> tuple[Path, ...]:
        """Return the files of users and policies of RocketMQ 5.3."""
        directory = self._config.store.store_path_root_dir / CONFIG_DIRECTORY
        return tuple(directory / name for _, name, *_ in self._kept)

    def _plain_paths(self) -> Sequence[Path]:
        """Return the files of accounts of RocketMQ 4.9 that exist now, also if they are only migrated."""
        if self._plain_files is not None:
            return self._plain_files.paths
        access = self._config.access
        return tuple(paths_in(access.acl_config_dir)) if access.migrate_auth_from_v1_enabled else ()

    def _plain_control(self, certificates: CertificateAccounts) -> Control:
        """Return the access control of RocketMQ 4.9."""
        config = self._config
        self._plain_files = plain_files(config)
        self.plain_acl = PlainAclControl(self._plain_files, certificates, is_strict=config.access.acl_strict)
        self.message_rights = self.plain_acl
        named = Broker(config.broker.broker_cluster_name, config.broker.broker_name, advertised_address(config))
        self._processors.append(("admin", AclProcessor(named, self._plain_files)))
        self._pages.append(AclAccounts(self._plain_files))
        return self.plain_acl

    def _auth_control(self, certificates: CertificateAccounts) -> Control:
        """Return the access control of RocketMQ 5.3."""
        access, cluster = self._config.access, self._config.broker.broker_cluster_name
        users = Users(initial_users(access))
        acls = Acls(users)
        self._auth_tables = users, acls
        self._kept += [
            Kept(users, USERS_FILE, decode_users, is_secret=True),
            Kept(acls, ACLS_FILE, decode_acls, is_secret=True),
        ]
        self.auth = AuthControl(access, cluster, users, acls, certificates)
        self._processors.append(("admin", AuthRequests(users, acls, self.auth.authenticator, self._saved)))
        self._pages.append(self.auth.authenticator)
        self.message_rights = self.auth
        return self.auth

    def _credentials(self) -> Credentials | None:
        """Return the broker's own credentials; new ones if its own name server needs some and none are set."""
        given = inner_client_credentials(self._config.access)
        return own_credentials() if given is None and self._config.security.namesrv_auth else given


def plain_files(config: DaemonConfig) -> ReloadedFiles:
    """Return the files of accounts of RocketMQ 4.9. Raises StartError if they cannot be read."""
    is_strict = config.security.strict_secret_files
    files = AclFiles(config.access.acl_config_dir, wall_ms, is_strict=is_strict)
    files.open()
    return ReloadedFiles(files)


def initial_users(config: AccessConfig) -> list[User]:
    """Return the super users of the configuration."""
    credentials = (initial_user(config), inner_client_credentials(config))
    return [User(one.access_key, one.secret_key, UserType.SUPER) for one in credentials if one is not None]


def page_accounts(
    ops: OpsConfig, sources: Sequence[Passwords], certificates: CertificateAccounts
) -> PageAccounts | None:
    """Return the accounts that may read the metrics page; None if it needs none. Raises StartError if there are
    none."""
    is_needed = ops.metrics_auth
    if is_needed is None:
        is_needed = bool(sources) and not is_loopback(ops.host)
    if not is_needed:
        return None
    if not sources:
        raise StartError("metricsAuth=true: expected with accountsFile or access control")
    return PageAccounts(sources, certificates)


class NamesrvAccess:
    """The access control and the quotas of a stand-alone name server. An open listener is logged. Raises StartError for
    unusable files. `page_accounts` may read the metrics page; None: it needs no account."""

    def __init__(self, config: NamesrvDaemonConfig, audit: AuditLog | None) -> None:
        security, tls, namesrv = config.security, config.tls, config.namesrv
        self._audit = audit
        self.refusals = Refusals()
        self.quotas = ClientQuotas(config.quotas, self.refusals)
        own_files = (security.accounts_file, tls.key_path)
        self.secret_files = SecretFiles((*security.secret_files, *own_files), is_strict=security.strict_secret_files)
        self.exposure = Exposure(
            tls, Listener("name_server", namesrv.bind_address, needs_account=security.namesrv_auth)
        )
        sources = [] if security.accounts_file is None else [AccountsFile(security.accounts_file)]
        certificates = CertificateAccounts(security.tls_auth_mapping)
        self._control = NamesrvControl(AnyOf(sources), certificates, time.monotonic, is_required=security.namesrv_auth)
        self._networks = AdminNetworks(security.admin_allowed_networks)
        self.page_accounts = page_accounts(config.ops, sources, certificates)

    def __repr__(self) -> str:
        return f"<NamesrvAccess {self._control!r} {self.quotas!r}>"

    def new_gate(self) -> Gate:
        """Return a gate for the requests, with the checks that the current settings need."""
        return Gate(self._control, [self._networks], self._audit, self.quotas.pacing())
