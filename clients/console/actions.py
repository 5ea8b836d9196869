"""Actions: a form, a question, and one line as the result.

    POST form -> the question, with the fields of the form -> POST confirmed -> the action -> redirect with its result

The guard has checked token and role before. A value that is not allowed, and an error of the cluster, lead back to the
form's page with the reason.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from skylarkmq.clients.console.guard import CSRF_FIELD, READ_ONLY
from skylarkmq.clients.console.rendering import form_of, redirect, respond
from skylarkmq.clients.console.state import cluster_of, console_of, session_of
from skylarkmq.clients.sdk.base.errors import ClientError, InvalidArgument

CONFIRMED: Final = "confirmed"


class Choice(NamedTuple):
    """A field that is chosen with the confirmation: its name, its label, and values with their texts."""

    name: str
    label: str
    values: tuple[tuple[str, str], ...]


class Question(NamedTuple):
    """The question before an action: its title, its effects, the label of its button, and the page to go back to."""

    title: str
    effect: str
    button: str
    back: str
    is_dangerous: bool = False
    choice: Choice | None = None


async def confirmed(request: Request, question: Question, run: Callable[[], Awaitable[str]], then: str) -> Response:
    """Ask, and run the action once it is confirmed. `run` returns the result; `then`: the page that shows it."""
    form = form_of(request)
    if form.get(CONFIRMED) != "yes":
        chosen = None if question.choice is None else question.choice.name
        fields = [(name, value) for name, value in form.items() if name not in {CSRF_FIELD, CONFIRMED, chosen}]
        return respond(request, "confirm.html", question=question, fields=fields, chosen=form.get(chosen or ""))
    try:
        result = await run()
    except ClientError as error:
        return redirect(request, question.back, f"Not done: {error}", is_error=True)
    finally:
        cluster_of(request).changed()
    return redirect(request, then, result)


def form_page(request: Request, template: str, **values: Any) -> Response:
    """Return the page of a form, which a read-only session does not get."""
    if not console_of(request).may_act(session_of(request)):
        raise HTTPException(HTTPStatus.FORBIDDEN, READ_ONLY)
    return respond(request, template, **values)


def refused(request: Request, back: str, error: InvalidArgument) -> Response:
    """Return to a form whose value is not allowed."""
    return redirect(request, back, f"Not done: {error}", is_error=True)
