"""Listeners that are open to other machines: when the start warns."""

import pytest

from skylarkmq.broker.access.exposure import Exposure, Listener
from skylarkmq.broker.remoting.config import ClientAuth, TlsConfig, TlsMode

PLAIN = TlsConfig()
MUTUAL = TlsConfig(mode=TlsMode.ENFORCING, need_client_auth=ClientAuth.REQUIRE)


@pytest.mark.parametrize(
    ("host", "needs_account", "tls", "expected"),
    [
        ("127.0.0.1", False, PLAIN, False),
        ("::1", False, PLAIN, False),
        ("localhost", False, PLAIN, False),
        ("0.0.0.0", False, PLAIN, True),
        ("::", False, PLAIN, True),
        ("10.0.0.5", False, PLAIN, True),
        ("broker.example", False, PLAIN, True),
        ("0.0.0.0", True, PLAIN, False),
        ("0.0.0.0", False, MUTUAL, False),
        ("0.0.0.0", False, TlsConfig(mode=TlsMode.ENFORCING, need_client_auth=ClientAuth.OPTIONAL), True),
        ("0.0.0.0", False, TlsConfig(mode=TlsMode.PERMISSIVE, need_client_auth=ClientAuth.REQUIRE), True),
    ],
)
def test_a_listener_is_open_without_account_and_certificate(
    host: str, needs_account: bool, tls: TlsConfig, expected: bool
) -> None:
    """Unless only this machine can reach it. Certificates count only if every connection must have one."""
    assert Listener("broker", host, needs_account=needs_account).is_open(tls) is expected


def test_the_start_warns_once_and_names_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    """One line for all open listeners."""
    exposure = Exposure(PLAIN, Listener("broker", "0.0.0.0", False), Listener("name_server", "0.0.0.0", False))
    assert exposure.is_open == {"broker": True, "name_server": True}
    assert caplog.messages == [
        (
            "other machines can use this daemon without an account listeners=broker,name_server "
            "settings=aclEnable or authenticationEnabled, namesrvAuth, tls.server.mode and tls.server.need.client.auth"
        )
    ]


def test_a_closed_daemon_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    """The metric shows that it is closed."""
    exposure = Exposure(MUTUAL, Listener("broker", "0.0.0.0", False))
    assert exposure.is_open == {"broker": False}
    assert caplog.messages == []
