"""The requests that read and change settings at run time, of a broker and of its embedded name server.

Which part follows which setting: `broker/app/config_reload.py`.
"""

from skylarkmq.broker.app.sections.registration import Registration
from skylarkmq.broker.base.protected_keys import ALWAYS
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, SHOWN_TOO
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.namesrv.config_requests import ConfigRequests
from skylarkmq.broker.processors.admin.config import ConfigProcessor


def config_processor(settings: LiveSettings[DaemonConfig], registration: Registration) -> ConfigProcessor:
    """Return the processor of a broker's settings. An embedded name server gets the requests for its own settings."""

    def protected_keys() -> tuple[str, ...]:
        return *ALWAYS, *settings.config.broker.config_black_list

    if registration.name_server is not None:
        namesrv_remote = RemoteSettings(settings, EMBEDDED_NAMESRV_KEYS, {}, protected_keys)
        registration.name_server.serve(ConfigRequests(namesrv_remote).handlers())
    remote = RemoteSettings(settings, BROKER_KEYS, SHOWN_TOO, protected_keys)
    return ConfigProcessor(remote, registration.registrar.register_now)
