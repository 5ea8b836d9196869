"""The check of the metrics page."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.clients.mqadmin.doctor.conftest import ScriptedCluster

PAGE = """# TYPE skylark_open_without_account gauge
skylark_open_without_account{listener="broker"} 1.0
skylark_open_without_account{listener="name_server"} 0.0
skylark_exposed_secret_files 2.0
"""


class Page(BaseHTTPRequestHandler):
    """Serves PAGE at /metrics, PAGE with odd values at /odd, and an empty page at /."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        page = PAGE.replace("1.0", "many").replace("2.0", "9" * 5000) if self.path == "/odd" else PAGE
        self.wfile.write(page.encode() if self.path != "/" else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no log."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_listener_without_accounts_and_exposed_secrets_are_found(cluster: ScriptedCluster, url: str) -> None:
    """As the broker's own metrics report them."""
    assert cluster.findings("--metrics", f"{url}/metrics") == [
        ("warning", "access", "other machines can use the broker without an account"),
        ("warning", "access", "other users of its machine can read 2 files with secrets"),
    ]


def test_a_page_of_another_server_is_not_examined(cluster: ScriptedCluster, url: str) -> None:
    """It has no such metric."""
    report = cluster.report("--metrics", f"{url}/")
    assert report.findings == []
    assert "the page has no skylark_open_without_account" in {each.reason for each in report.not_examined}


def test_values_that_are_no_numbers_are_no_finding(cluster: ScriptedCluster, url: str) -> None:
    """Nor do they end the examination."""
    assert cluster.findings("--metrics", f"{url}/odd") == []


@pytest.mark.parametrize("bad", ["http://127.0.0.1:1/metrics", "file:///etc/passwd", "http://[", "nonsense"])
def test_a_page_that_cannot_be_read_is_a_warning(cluster: ScriptedCluster, bad: str) -> None:
    """Also if the address is none of a web page."""
    (finding,) = cluster.findings("--metrics", bad)
    assert finding[:2] == ("warning", "access")
    assert finding[2].startswith("the metrics page cannot be read: ")
