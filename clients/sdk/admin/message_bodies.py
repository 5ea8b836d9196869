"""Bodies of messages as text for a page: UTF-8, JSON with indents, or a hex dump. Long bodies are cut.

A page stays below 200 KB, whatever a message contains.
"""

import json
from typing import Final, NamedTuple

FORMS: Final = ("text", "json", "hex")
MAX_CHARACTERS: Final = 32_000
MAX_HEX_BYTES: Final = 8_192
MAX_JSON_BYTES: Final = 1 << 20
PREVIEW_CHARACTERS: Final = 120
BYTES_OF_A_LINE: Final = 16


class BodyView(NamedTuple):
    """A body in one form. `problem`: why it cannot be shown in this form; `is_cut`: only its beginning is shown."""

    form: str
    text: str
    is_cut: bool = False
    problem: str | None = None


def best_form(body: bytes) -> str:
    """Return the form that suits a body."""
    if not _is_text(body):
        return "hex"
    return "json" if body[:1] in {b"{", b"["} and _indented(body) is not None else "text"


def view_of(body: bytes, form: str) -> BodyView:
    """Return a body in a form; in the best one if `form` is none of FORMS."""
    if form not in FORMS:
        form = best_form(body)
    if form == "hex":
        return BodyView(form, hex_dump(body[:MAX_HEX_BYTES]), len(body) > MAX_HEX_BYTES)
    text = _indented(body) if form == "json" else body[: 4 * MAX_CHARACTERS].decode("utf-8", "replace")
    if text is None:
        return BodyView(form, "", problem="The body is not JSON, or is too large to be shown as JSON.")
    is_cut = len(text) > MAX_CHARACTERS or (form == "text" and len(body) > 4 * MAX_CHARACTERS)
    return BodyView(form, text[:MAX_CHARACTERS], is_cut)


def preview_of(body: bytes) -> str:
    """Return the beginning of a body in one line."""
    text = body[: 4 * PREVIEW_CHARACTERS].decode("utf-8", "replace")
    line = " ".join(text[:PREVIEW_CHARACTERS].split())
    return f"{line}…" if len(text) > PREVIEW_CHARACTERS or len(body) > 4 * PREVIEW_CHARACTERS else line


def hex_dump(data: bytes) -> str:
    """Return lines with the offset, 16 bytes in hex, and the same as ASCII."""
    lines = []
    for at in range(0, len(data), BYTES_OF_A_LINE):
        part = data[at : at + BYTES_OF_A_LINE]
        readable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {readable}")
    return "\n".join(lines)


def _is_text(body: bytes) -> bool:
    """Return whether the beginning of a body is UTF-8 without unusual control characters."""
    sample = body[:4_096]
    try:
        text = sample.decode()
    except UnicodeDecodeError as error:
        if error.end < len(sample) or len(body) == len(sample):
            return False
        text = sample[: error.start].decode()  # a character is cut at the end of the sample
    return all(character.isprintable() or character in "\r\n\t" for character in text)


def _indented(body: bytes) -> str | None:
    """Return a JSON body with indents; None if it is no JSON."""
    if len(body) > MAX_JSON_BYTES:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
