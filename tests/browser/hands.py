"""Three ways to use a page: a mouse, a finger on a phone, and a keyboard alone.

The keyboard reaches every element with the Tab key, as a person does, and fails if no focus ring is drawn around it.
"""

from typing import ClassVar, Final

from playwright.sync_api import Locator

from tests.browser.tab import Tab

MOST_TABS: Final = 400
HAS_FOCUS: Final = "element => element === document.activeElement"
HAS_RING: Final = "element => getComputedStyle(element).outlineStyle !== 'none'"


class Hand:
    """Uses a tab by mouse."""

    name: ClassVar[str] = "mouse"
    is_phone: ClassVar[bool] = False

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.page = tab.page

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.page.url}>"

    def press(self, selector: str) -> None:
        """Press a link, a button or a checkbox."""
        self.page.locator(selector).click()

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        self.page.locator(selector).fill(text)

    def choose(self, selector: str, label: str) -> None:
        """Choose from a list."""
        self.page.locator(selector).select_option(label=label)

    def show_question(self, name: str) -> None:
        """Store a screenshot of the question of an action."""
        self.page.locator("#confirm-button").wait_for()
        self.tab.shot(name)

    def confirm(self) -> str:
        """Answer the question of an action with yes, and return the result."""
        self.press("#confirm-button")
        return self.tab.notice


class Finger(Hand):
    """Uses a tab of a phone by touch."""

    name = "finger"
    is_phone = True

    def press(self, selector: str) -> None:
        """Tap a link, a button or a checkbox."""
        self.page.locator(selector).tap()


class Keyboard(Hand):
    """Uses a tab by keyboard alone."""

    name = "keyboard"

    def press(self, selector: str) -> None:
        """Reach an element, and press Enter; a checkbox takes the space bar."""
        target = self._reached(selector)
        self.page.keyboard.press("Space" if target.get_attribute("type") == "checkbox" else "Enter")

    def write(self, selector: str, text: str) -> None:
        """Reach a field, and type its new text."""
        target = self._reached(selector)
        if target.get_attribute("type") == "datetime-local":  # its parts depend on the browser's language
            target.fill(text)
            return
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def choose(self, selector: str, label: str) -> None:
        """Reach a list, and move down to the entry."""
        target = self._reached(selector)
        while target.evaluate("list => list.selectedOptions[0].label") != label:
            self.page.keyboard.press("ArrowDown")

    def _reached(self, selector: str) -> Locator:
        """Press Tab until an element has the focus, and return it."""
        target = self.page.locator(selector)
        for _ in range(MOST_TABS):
            if target.evaluate(HAS_FOCUS):
                assert target.evaluate(HAS_RING), f"{selector}: no focus ring"
                return target
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} cannot be reached with the Tab key")


HANDS: Final = (Hand, Finger, Keyboard)
