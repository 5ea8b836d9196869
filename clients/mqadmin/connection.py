"""The cluster of a command: addresses of name servers, TLS and credentials.

The address is the first of these that is given: `-n`, NAMESRV_ADDR, the profile, 127.0.0.1:9876. Profiles are in
`~/.config/skylark/config.toml`:

    [profiles.default]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "operator"
    secret_key_file = "operator.key"        # relative to the directory of config.toml

    [profiles.default.tls]                  # or `tls = true`
    trust_cert = "authority.pem"            # default: the system's authorities
    cert = "operator.pem"                   # for servers that require one
    key = "operator-key.pem"
    check_server = true
    check_host_name = true

`--profile` or SKYLARK_PROFILE names a profile. The profile `default` applies only if nothing else names a profile or an
address, so that its credentials are not sent to other clusters. Without a profile, credentials are read from
`conf/tools.yml` below ROCKETMQ_HOME, as by RocketMQ's tool.

A file with a secret that other users can read is refused, as the broker does with `strictSecretFiles`. Container
secrets are excepted: files of root below /run/secrets that only root can write.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client

LOCAL: Final = "127.0.0.1:9876"
DEFAULT_PROFILE: Final = "default"
REQUEST_TIMEOUT_S: Final = 5.0
"""As RocketMQ's tool."""
CALL_TIMEOUT_S: Final = 60.0
CONTAINER_SECRETS: Final = (Path("/run/secrets"), Path("/var/run/secrets"))


class TlsProfile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table `tls` of a profile. Paths are relative to the directory of the configuration."""

    trust_cert: str | None = None
    cert: str | None = None
    key: str | None = None
    check_server: bool = True
    check_host_name: bool = True


class Profile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One profile of config.toml."""

    namesrv: str | None = None
    access_key: str | None = None
    secret_key_file: str | None = None
    tls: bool | TlsProfile = False


class ConfigFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of config.toml."""

    profiles: dict[str, Profile] = {}


class Connection(msgspec.Struct, frozen=True):
    """How a command reaches its cluster."""

    namesrv: str
    tls: TlsSettings | None = None
    credentials: Credentials | None = None

    def client(self) -> Client:
        """Return a client that is not started. InvalidArgument if an address or a certificate is not valid."""
        settings = ClientSettings(
            request_timeout_s=REQUEST_TIMEOUT_S,
            call_timeout_s=CALL_TIMEOUT_S,
            tls=self.tls,
            credentials=self.credentials,
        )
        return Client(self.namesrv, settings)


def connection_of(namesrv: str | None, profile: str | None, environment: Mapping[str, str]) -> Connection:
    """Return the connection for the options of a command. CommandFailed if a file or profile is missing or invalid."""
    address = namesrv or environment.get("NAMESRV_ADDR") or None
    named = profile or environment.get("SKYLARK_PROFILE") or None
    path = config_path(environment)
    if named is None and (address is not None or not _has_profile(path, DEFAULT_PROFILE)):
        return Connection(address or LOCAL, credentials=tools_credentials(environment))
    chosen = _profile(path, named or DEFAULT_PROFILE)
    return Connection(
        address or chosen.namesrv or LOCAL,
        tls=_tls(chosen.tls, path.parent),
        credentials=_credentials(chosen, path),
    )


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of config.toml: below XDG_CONFIG_HOME, or else below ~/.config."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".config") / "skylark/config.toml"


def tools_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Return the credentials in conf/tools.yml of ROCKETMQ_HOME; None if there is no such file."""
    home = environment.get("ROCKETMQ_HOME")
    path = Path(home or "", "conf/tools.yml")
    if not home or not path.exists():
        return None
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise usage_error(f"{path} is not valid YAML: correct it, or unset ROCKETMQ_HOME.") from error
    keys = [content.get(name) for name in ("accessKey", "secretKey")] if isinstance(content, dict) else []
    if not all(keys) or not keys:
        return None  # the tool's own file has them as comments
    return Credentials(str(keys[0]), str(keys[1]))


def _has_profile(path: Path, name: str) -> bool:
    return path.exists() and name in _config_file(path).profiles


def _config_file(path: Path) -> ConfigFile:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), ConfigFile)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise usage_error(f"{path}: {error}. See docs/run/mqadmin.md, Profiles.") from error


def _profile(path: Path, name: str) -> Profile:
    if not path.exists():
        raise usage_error(f"no profile {name}: there is no file {path}. See docs/run/mqadmin.md, Profiles.")
    profiles = _config_file(path).profiles
    if name not in profiles:
        raise usage_error(f"no profile {name} in {path}. Its profiles: {', '.join(sorted(profiles)) or 'none'}.")
    return profiles[name]


def _tls(profile: bool | TlsProfile, directory: Path) -> TlsSettings | None:
    if isinstance(profile, bool):
        return TlsSettings() if profile else None

    def located(name: str | None) -> Path | None:
        if name is None:
            return None
        path = directory / Path(name).expanduser()
        if not path.exists():
            raise usage_error(f"{path} does not exist: correct the TLS settings of the profile.")
        return path

    cert, key = located(profile.cert), located(profile.key)
    if (holds_key := key or cert) is not None:
        refuse_exposed(holds_key)
    return TlsSettings(
        trust_cert_path=located(profile.trust_cert),
        cert_path=cert,
        key_path=key,
        check_server=profile.check_server,
        check_host_name=profile.check_host_name,
    )


def _credentials(profile: Profile, path: Path) -> Credentials | None:
    if profile.access_key is None and profile.secret_key_file is None:
        return None
    if profile.access_key is None or profile.secret_key_file is None:
        raise usage_error(f"{path}: access_key and secret_key_file go together: set both or neither.")
    file = path.parent / Path(profile.secret_key_file).expanduser()
    return Credentials(profile.access_key, read_secret(file))


def read_secret(file: Path) -> str:
    """Return the secret in a file, without white space around it. OSError if the file cannot be read.

    CommandFailed if other users can read it, if it is empty, or if it is no text.
    """
    refuse_exposed(file)
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise usage_error(f"{file} is not UTF-8 text: write only the secret to it.") from error
    if not secret:
        raise usage_error(f"{file} is empty: write the secret to it.")
    return secret


def refuse_exposed(file: Path) -> None:
    """Raise CommandFailed if other users can read a file with a secret. OSError if there is no such file."""
    status = file.stat()
    if not status.st_mode & (stat.S_IRGRP | stat.S_IROTH) or stat.S_ISDIR(status.st_mode):
        return
    normal = Path(os.path.normpath(file.absolute()))
    is_in_container = any(normal.is_relative_to(directory) for directory in CONTAINER_SECRETS)
    if not (is_in_container and status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise usage_error(f"other users can read {file}, which holds a secret: chmod 600 {file}")
