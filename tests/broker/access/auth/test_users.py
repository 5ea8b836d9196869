"""Users: RocketMQ's remarks, limits, and the file."""

import json

import pytest

from skylarkmq.broker.access.auth.users import (
    MOST_NAME_CHARACTERS,
    MOST_PASSWORD_CHARACTERS,
    MOST_USERS,
    User,
    UserChange,
    Users,
    UserStatus,
    UserType,
    decode_users,
)
from skylarkmq.protocol.bodies.auth import UserInfo
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

ADMIN = User("admin", "admin-secret", UserType.SUPER)


def change(
    name: str = "u", password: str | None = "pw", type_: str | None = None, status: str | None = None
) -> UserChange:
    return UserChange.of(name, UserInfo(name, password, type_, status))


def users() -> Users:
    table = Users([ADMIN])
    table.load(None)
    return table


def test_defaults_of_a_new_user() -> None:
    """Normal and enabled, also if the given words are unknown."""
    table = users()
    assert table.create(change()) == User("u", "pw", UserType.NORMAL, UserStatus.ENABLE)
    assert table.create(change("v", type_="Hyper", status="asleep")) == User("v", "pw")
    assert table.create(change("w", type_="sUPER", status="DISABLE")) == User(
        "w", "pw", UserType.SUPER, UserStatus.DISABLE
    )


@pytest.mark.parametrize(
    ("refused", "remark"),
    [
        (change(" "), "username can not be blank"),
        (change(password=""), "password can not be blank"),
        (change(password=" "), "password can not be blank"),
        (change(password=None), "password can not be blank"),
        (change("admin"), "The user is existed"),
        (change("u" * (MOST_NAME_CHARACTERS + 1)), "the username has 256 characters, the limit is 255"),
        (change(password="p" * (MOST_PASSWORD_CHARACTERS + 1)), "the password has 1025 characters, the limit is 1024"),
    ],
)
def test_refused_users(refused: UserChange, remark: str) -> None:
    """The code is NO_PERMISSION (16), and no user is created."""
    table = users()
    with pytest.raises(RequestError) as raised:
        table.create(refused)
    assert (raised.value.code, raised.value.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert table.matching("") == [ADMIN]


def test_names_and_passwords_of_the_greatest_length() -> None:
    """The limits themselves are permitted."""
    users().create(change("u" * MOST_NAME_CHARACTERS, "p" * MOST_PASSWORD_CHARACTERS))


def test_the_number_of_users_is_limited() -> None:
    """A user above the limit is refused; changes are not."""
    table = Users(User(str(number), "pw") for number in range(MOST_USERS))
    table.load(None)
    with pytest.raises(RequestError, match="there are 10000 users, the limit"):
        table.create(change())
    table.update(change("5", "other"))


def test_a_change_keeps_the_members_that_it_does_not_give() -> None:
    """Blank passwords and unknown words change nothing."""
    table = users()
    table.create(change())
    assert table.update(change(password=" ", type_="Hyper", status="disable")) == User(
        "u", "pw", UserType.NORMAL, UserStatus.DISABLE
    )
    assert table.update(change(password="new")).password == "new"
    with pytest.raises(RequestError, match="The user is not exist"):
        table.update(change("x"))


def test_users_are_found_by_a_part_of_their_names() -> None:
    """The order is that of the bytes of names; a blank filter finds all."""
    table = users()
    for name in ("b", "ab", "é"):
        table.create(change(name))
    assert [user.username for user in table.matching("b")] == ["ab", "b"]
    assert [user.username for user in table.matching(" ")] == ["ab", "admin", "b", "é"]


def test_the_file_contains_every_user() -> None:
    """A loaded file gives the same users, and a user of the configuration does not replace them."""
    table = users()
    table.create(change("u", "päss", "Super", "disable"))
    again = Users([User("admin", "other", UserType.SUPER)])
    again.load(table.encode())
    assert again.matching("") == table.matching("")
    assert json.loads(table.encode())["userTable"]["u"] == {
        "username": "u", "password": "päss", "userType": "Super", "userStatus": "disable",
    }  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_torn_file_is_an_error(cut: int) -> None:
    """A part of the file is never a shorter list, and the error contains no password."""
    with pytest.raises(ValueError, match="not a table of users") as raised:
        decode_users(users().encode()[:cut])
    assert "admin-secret" not in str(raised.value)


@pytest.mark.parametrize(
    "row",
    [
        {"username": "v", "password": "p", "userType": "Super", "userStatus": "enable"},
        {"username": "u", "password": "", "userType": "Super", "userStatus": "enable"},
        {"username": "u", "password": "p", "userType": "Hyper", "userStatus": "enable"},
        {"username": "u", "password": "p", "userType": "Super"},
        {"username": "u", "password": ["admin-secret"], "userType": "Super", "userStatus": "enable"},
    ],
)
def test_a_row_that_no_user_has_is_an_error(row: dict[str, object]) -> None:
    """Another name, a missing member, an unknown word or a value of another type."""
    with pytest.raises(ValueError, match="not a table of users") as raised:
        decode_users(json.dumps({"userTable": {"u": row}}).encode())
    assert "admin-secret" not in str(raised.value)


def test_no_text_of_a_user_contains_its_password() -> None:
    """Neither of users, nor of changes and bodies."""
    info = UserInfo("u", "admin-secret", "Super", "enable")
    texts = f"{ADMIN!r} {ADMIN} {UserChange.of('u', info)!r} {info!r} {info} {users()!r}"
    assert "admin-secret" not in texts
