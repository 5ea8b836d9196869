"""The hook of mkdocs.yml: generated pages, folders in the navigation, and links to files of the repository.

Documents link to files outside docs/ by relative paths, which work in a checkout and on the pages of a Git server. On
the site these links lead to the repository.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

# MkDocs imports this file by its path; the pages come from the code of this checkout, not from an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from docs.hooks.generated_pages import generated_pages

ROOT: Final = Path(__file__).resolve().parents[2]
BRANCH: Final = "main"
LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_config(config: Any) -> Any:
    """Replace folders in the navigation by their pages."""
    config.nav = [expanded(entry) for entry in config.nav]
    return config


def expanded(entry: Any) -> Any:
    """Return an entry of the navigation with the pages of each folder in its lists."""
    if not isinstance(entry, dict):
        return entry
    ((title, value),) = entry.items()
    if not isinstance(value, list):
        return entry
    return {title: [page for one in value for page in (pages_in(one) if is_folder(one) else [expanded(one)])]}


def is_folder(entry: Any) -> bool:
    return isinstance(entry, str) and entry.endswith("/")


def pages_in(folder: str) -> list[str]:
    """Return the pages of a folder, generated ones included, in alphabetical order after its index."""
    on_disk = (str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs" / folder).glob("*.md"))
    generated = (path for path in generated_pages() if path.startswith(folder))
    return sorted({*on_disk, *generated}, key=lambda path: (not path.endswith("/index.md"), path))


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: object) -> str:
    """Turn links to files outside docs/ into links to the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, found[1]))
        if path.startswith("docs/"):
            return found[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which does not exist")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/{BRANCH}/{path}{found[2] or ''}"

    return LINK.sub(target, markdown)
