"""Users: names, passwords, types and states, stored in `config/users.json`.

The name is the access key of a client, the password its secret key. Super users may do everything. The remarks of
refused changes are RocketMQ's. Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/disk.md,
"State files".
"""

import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Self

import msgspec

from skylarkmq.protocol.bodies.auth import UserInfo
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

USERS_FILE: Final = "users.json"
MOST_USERS: Final = 10_000
MOST_NAME_CHARACTERS: Final = 255
MOST_PASSWORD_CHARACTERS: Final = 1_024

log = logging.getLogger(__name__)


class UserType(Enum):
    """RocketMQ's types of users."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """RocketMQ's states of users. Requests of disabled users are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


_TYPES: Final = {member.value.lower(): member for member in UserType}
_STATUSES: Final = {member.value.lower(): member for member in UserStatus}


class User(msgspec.Struct, frozen=True):
    """One user. The password is never part of a `repr`."""

    username: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    def __repr__(self) -> str:
        return f"<User {self.username} {self.type.value} {self.status.value}>"

    @property
    def is_super(self) -> bool:
        """Return whether the user may do everything."""
        return self.type is UserType.SUPER

    def info(self, *, with_password: bool) -> UserInfo:
        """Return the body that describes the user."""
        return UserInfo(
            username=self.username,
            password=self.password if with_password else None,
            user_type=self.type.value,
            user_status=self.status.value,
        )


class UserChange(msgspec.Struct, frozen=True):
    """A user as a request describes it: None where the request gives no value, or none that RocketMQ has."""

    username: str
    password: str | None
    type: UserType | None
    status: UserStatus | None

    def __repr__(self) -> str:
        return f"<UserChange {self.username}>"

    @classmethod
    def of(cls, username: str, info: UserInfo) -> Self:
        """Return the change in a body."""
        password = info.password if info.password is not None and info.password.strip() else None
        type_ = _TYPES.get((info.user_type or "").lower())
        return cls(username, password, type_, _STATUSES.get((info.user_status or "").lower()))


class UsersStatistics(msgspec.Struct, frozen=True):
    """The number of users."""

    users: int


class Users:
    """Users by name. `initial`: users that are created at the start, if no user has their name."""

    def __init__(self, initial: Iterable[User] = ()) -> None:
        self._initial = tuple(initial)
        self._users: dict[str, User] = {}
        self._listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Users {len(self._users)}>"

    def statistics(self) -> UsersStatistics:
        """Return the current figures."""
        return UsersStatistics(users=len(self._users))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def on_delete(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each deleted user."""
        self._delete_listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load users.json (None: a new store), then create the initial users. Raises ValueError."""
        if data is not None:
            self._users = decode_users(data)
        for user in self._initial:
            if user.username not in self._users:
                log.info("user created by the configuration user=%s type=%s", user.username, user.type.value)
                self._put(user)
        log.info("users loaded users=%d", len(self._users))
        if not self._users:
            log.warning("authentication is enabled but no user exists: set initAuthenticationUser to create one")

    def encode(self) -> bytes:
        """Return the table as users.json."""
        return _encode({name: user.info(with_password=True) for name, user in self._users.items()})

    def find(self, username: str) -> User | None:
        """Return the user, if there is one."""
        return self._users.get(username)

    def matching(self, text: str) -> list[User]:
        """Return the users whose names contain `text` (blank: all), ordered by the bytes of their names."""
        found = (user for name, user in self._users.items() if not text.strip() or text in name)
        return sorted(found, key=lambda user: user.username.encode())

    def create(self, change: UserChange) -> User:
        """Create a user; its type is Normal and its status enable by default. Raises RequestError."""
        if not change.username.strip():
            raise refusal("username can not be blank")
        if change.password is None:
            raise refusal("password can not be blank")
        if change.username in self._users:
            raise refusal("The user is existed")
        check_limits(change.username, change.password)
        if len(self._users) >= MOST_USERS:
            raise refusal(f"there are {MOST_USERS} users, the limit")
        user = User(
            change.username, change.password, change.type or UserType.NORMAL, change.status or UserStatus.ENABLE
        )
        self._put(user)
        return user

    def update(self, change: UserChange) -> User:
        """Change the given members of a user. Raises RequestError."""
        user = self._users.get(change.username)
        if user is None:
            raise refusal("The user is not exist")
        check_limits(change.username, change.password or "")
        user = User(
            user.username, change.password or user.password, change.type or user.type, change.status or user.status
        )
        self._put(user)
        return user

    def delete(self, username: str) -> bool:
        """Remove a user; return whether there was one."""
        if self._users.pop(username, None) is None:
            return False
        for forget in self._delete_listeners:
            forget(username)
        self._changed()
        return True

    def _put(self, user: User) -> None:
        self._users[user.username] = user
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def refusal(remark: str) -> RequestError:
    """Return the error of a request about users or policies."""
    return RequestError(ResponseCode.NO_PERMISSION, remark)


def check_limits(username: str, password: str) -> None:
    """Check the lengths of a name and a password. Raises RequestError."""
    if len(username) > MOST_NAME_CHARACTERS:
        raise refusal(f"the username has {len(username)} characters, the limit is {MOST_NAME_CHARACTERS}")
    if len(password) > MOST_PASSWORD_CHARACTERS:
        raise refusal(f"the password has {len(password)} characters, the limit is {MOST_PASSWORD_CHARACTERS}")


class _StoredUser(msgspec.Struct, rename="camel"):
    """A row of users.json."""

    username: str
    password: str
    user_type: UserType
    user_status: UserStatus


class _StoredUsers(msgspec.Struct, rename="camel"):
    """The content of users.json."""

    user_table: dict[str, _StoredUser]


_DECODER: Final = msgspec.json.Decoder(_StoredUsers)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def decode_users(data: bytes) -> dict[str, User]:
    """Return the users in users.json. Raises ValueError, without a part of the content, if it is damaged."""
    try:
        rows = _DECODER.decode(data).user_table
    except ValueError as error:
        raise ValueError(f"not a table of users: {error}") from None
    if any(name != row.username or not name or not row.password for name, row in rows.items()):
        raise ValueError("not a table of users: a name or a password is missing")
    return {name: User(row.username, row.password, row.user_type, row.user_status) for name, row in rows.items()}


def _encode(table: dict[str, UserInfo]) -> bytes:
    return _ENCODER.encode({"userTable": table})
