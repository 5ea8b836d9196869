"""The pages of the site that are made from the code when the site is built, by their paths below docs/."""

from functools import cache

from docs.hooks import api_page, codes_page, commands_page, settings_page


@cache
def generated_pages() -> dict[str, str]:
    """Return the text of each generated page in Markdown."""
    return {
        "reference/settings.md": settings_page.page(),
        "reference/codes.md": codes_page.page(),
        **{f"reference/commands/{name}": text for name, text in commands_page.pages().items()},
        **{f"reference/api/{name}": text for name, text in api_page.pages().items()},
    }


def generated_names() -> frozenset[str]:
    """Return the paths of these pages, without making them."""
    commands = (f"reference/commands/{name}.md" for name in ("index", *commands_page.scripts()))
    modules = (f"reference/api/{name}.md" for name in api_page.MODULES)
    return frozenset(("reference/settings.md", "reference/codes.md", *commands, *modules))
