"""Check of the metrics page of one Skylark broker: listeners that need no account, and exposed secrets."""

import asyncio
import re
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, NotExamined, Outcomes, warning
from skylarkmq.clients.mqadmin.doctor.subject import NotAvailable, Subject
from skylarkmq.clients.mqadmin.people.broker_state import number_of
from skylarkmq.clients.terminal.printed_output import counted

TIMEOUT_S: Final = 5.0
MAX_BYTES: Final = 64 << 20
_OPEN: Final = re.compile(r'^skylark_open_without_account\{listener="(\w+)"\} (\S+)', re.MULTILINE)
_EXPOSED: Final = re.compile(r"^skylark_exposed_secret_files (\S+)", re.MULTILINE)


async def access(subject: Subject) -> Outcomes:
    """Other machines need an account to use the broker and the name server."""
    url = subject.wanted.metrics_url
    if url is None:
        raise NotAvailable("no metrics page is given (--metrics)")
    try:
        text = await asyncio.to_thread(_page, url)
    except (OSError, HTTPException, ValueError) as problem:
        next_step = "Check the address, metricsPromExporterPort and metricsAuth of the broker."
        yield warning(url, f"the metrics page cannot be read: {problem}", next_step)
        return
    listeners = _OPEN.findall(text)
    if not listeners:
        yield NotExamined(url, "the page has no skylark_open_without_account")
    for listener, value in listeners:
        if number_of(value):
            what = f"other machines can use the {listener.replace('_', ' ')} without an account"
            yield warning(url, what, "Turn on access control, or listen on a private address (SECURITY.md).")
    if (found := _EXPOSED.search(text)) is not None and (exposed := number_of(found[1])):
        what = f"other users of its machine can read {counted(int(exposed), 'file')} with secrets"
        yield warning(url, what, "chmod 600 the files that the log of the broker names.")


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it must begin with http:// or https://")
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return str(response.read(MAX_BYTES), "utf-8", "replace")


CHECKS: Final = (Check("access", access),)
