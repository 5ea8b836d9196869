"""The caller of a request, as far as access control has established it."""

from enum import Enum
from typing import Final

import msgspec


class Proof(Enum):
    """How the account of a caller was established."""

    NONE = "none"
    SIGNATURE = "signature"
    CERTIFICATE = "certificate"
    WHITE_ADDRESS = "white_address"


class Caller(msgspec.Struct, frozen=True):
    """An account, its proof, and whether it may change the cluster. The account of an anonymous caller is empty."""

    account: str = ""
    proof: Proof = Proof.NONE
    is_admin: bool = False


ANONYMOUS: Final = Caller()
