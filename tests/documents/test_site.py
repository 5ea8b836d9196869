"""The site of the documents builds without a warning and works without a network.

`mkdocs build --strict` fails for a link to a page or an anchor that does not exist, and for a page that the navigation
lacks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.examples import ROOT
from tests.harness.limits import PROCESS_LIMIT_S

pytestmark = pytest.mark.packaging

LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="(https?://[^"]+)"')


def built_site(target: Path) -> Path:
    """Return the directory of the built site. Raises AssertionError for a warning."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_the_site_is_complete_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Written and generated pages are there. No page loads fonts, scripts, styles or images of another host."""
    site = built_site(tmp_path)
    for page in ("index.html", "reference/wire/index.html", "reference/settings/index.html", "run/alerts/index.html"):
        assert (site / page).is_file(), page
    loaded = {
        found
        for page in site.rglob("*.html")
        for found in LOADED.findall(re.sub(r'<link rel="(?:canonical|next|prev)"[^>]*>', "", page.read_text()))
    }
    assert loaded == set()
