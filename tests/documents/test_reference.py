"""The reference is complete: every setting, code, metric, alert, command and public name is documented."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from docs.hooks import api_page, settings_page
from docs.hooks.commands_page import HIDDEN, commands
from docs.hooks.generated_pages import generated_names, generated_pages
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.ops.catalogue import CATALOGUE
from skylarkmq.clients.mqadmin.app.cli import ON_DEMAND
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.documents.examples import PAGES, ROOT

SETTINGS = (*BROKER_KEYS.settings, *NAMESRV_KEYS.settings)
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
RUNBOOK = ROOT / "docs" / "run" / "alerts"
SITE = re.findall(r"^site_url: (.+)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)[0]
REPOSITORY = re.findall(r"^  repository: (\S+)", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)[0]


def test_each_setting_has_a_meaning() -> None:
    """The field of each setting has a comment, which is its text on the page of settings."""
    without = [f"{setting.field} of {setting.section}" for setting in SETTINGS if not settings_page.meaning(setting)]
    assert without == [], "add a comment to each of these fields"


def test_every_setting_is_on_the_page() -> None:
    """Each key has a row; the keys without effect are listed."""
    page = generated_pages()["reference/settings.md"]
    missing = [one.key for one in BROKER_KEYS.settings if f"`{one.key}` |" not in page]
    missing += [key for key in (*BROKER_KEYS.only, *BROKER_KEYS.inactive) if f"`{key}`" not in page]
    assert missing == []


def test_settings_that_take_effect_at_once_are_marked() -> None:
    """Known examples of both kinds: the page follows the subscriptions of the parts."""
    rows = {
        found[1]: found[0]
        for found in re.finditer(
            r"^\| <span[^|]*`([\w.]+)` \|.*$", generated_pages()["reference/settings.md"], re.MULTILINE
        )
    }
    assert all(
        "| now |" in rows[key]
        for key in ("fileReservedTime", "maxTopics", "quotaClientConnections", "timerMaxDelaySec")
    )
    assert all("| start |" in rows[key] for key in ("storePathRootDir", "flushDiskType", "listenPort", "namesrvAuth"))


def test_every_code_is_on_the_page() -> None:
    """Requests and responses have a row."""
    page = generated_pages()["reference/codes.md"]
    assert [code.name for code in (*RequestCode, *ResponseCode) if f"`{code.name}`" not in page] == []


def test_every_metric_is_documented() -> None:
    """docs/reference/metrics.md has a row for each metric of the catalogue (tests/broker/ops compares its texts)."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert [name for name in CATALOGUE if f"| `{name}` |" not in page] == []


def test_metrics_that_documents_name_exist() -> None:
    """Each `skylark_` metric in a document is in the catalogue."""
    names = {name for page in PAGES for name in re.findall(r"`(skylark_[a-z0-9_]+)`", page.read_text())}
    assert sorted(names - CATALOGUE.keys()) == []


def test_every_alert_has_its_page() -> None:
    """Each alert has a page of the runbook, links to it, and is in the overview; no page is left over."""
    links = dict(re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*? +runbook_url: (\S+)", ALERTS))
    names = re.findall(r"- alert: (\w+)", ALERTS)
    assert links == {name: f"{SITE}run/alerts/{name}/" for name in names}
    assert {path.stem for path in RUNBOOK.glob("*.md")} - {"index"} == set(names)
    overview = (RUNBOOK / "index.md").read_text()
    assert [name for name in names if f"[{name}]({name}.md)" not in overview] == []


@pytest.mark.parametrize("path", sorted(RUNBOOK.glob("[A-Z]*.md")), ids=lambda path: path.stem)
def test_a_page_of_the_runbook_says_what_to_do(path: Path) -> None:
    """It has the severity of the alert, what to check and what to do."""
    text = path.read_text()
    severity = re.findall(rf"- alert: {path.stem}\n(?:(?!- alert).*\n)*? +labels: \{{severity: (\w+)", ALERTS)
    assert re.findall(r"^\*Severity: (\w+)\.\*$", text, flags=re.MULTILINE) == severity
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == ["Check", "Act"]


@pytest.mark.parametrize("module", api_page.MODULES)
def test_every_public_name_is_documented(module: str) -> None:
    """Each public class and function, and each of its public methods, has a docstring and a section."""
    page = generated_pages()[f"reference/api/{module}.md"]
    missing = []
    for name in api_page.public_names(module):
        value = getattr(import_module(module), name)
        assert f"\n## {name}\n" in page
        if inspect.isclass(value):
            missing += [] if inspect.getdoc(value) else [name]
            missing += [f"{name}.{method}" for method, one in api_page.public_members(value) if not documented(one)]
            if issubclass(value, msgspec.Struct):
                assert all(f"| `{field.name}` |" in page for field in msgspec.structs.fields(value))
        elif inspect.isroutine(value):
            missing += [] if inspect.getdoc(value) else [name]
    assert missing == []


def documented(member: object) -> bool:
    return bool(inspect.getdoc(getattr(member, "__func__", member)))


def test_every_command_has_its_page() -> None:
    """Each command of pyproject.toml has a page with all of its options."""
    for name, (command, _) in commands().items():
        page = generated_pages()[f"reference/commands/{name}.md"]
        for parameter in command.params:
            if not set(parameter.opts) & HIDDEN and parameter.param_type_name == "option":
                assert parameter.opts[-1] in page, (name, parameter.opts)
    page = generated_pages()["reference/commands/mqadmin.md"]
    assert all(f"\n## mqadmin {name}\n" in page for name in ON_DEMAND)


def test_addresses_of_the_project_agree() -> None:
    """pyproject.toml names the site and the repository of mkdocs.yml."""
    project = (ROOT / "pyproject.toml").read_text()
    assert f'Documentation = "{SITE}"' in project
    assert f'Source = "{REPOSITORY}"' in project


def test_names_of_generated_pages_are_known_without_making_them() -> None:
    """The names that tests of links use are those of the pages."""
    assert generated_names() == generated_pages().keys()
