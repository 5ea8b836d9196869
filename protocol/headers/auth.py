"""Headers about users and their policies: AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010).

Source: docs/reference/behaviour.md, "Users and policies".
"""

from skylarkmq.protocol.headers.fields import Header


class UserHeader(Header, gc=False, rename="camel"):
    """AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003), AUTH_GET_USER (3004)."""

    username: str = ""


class ListUsersHeader(Header, gc=False, rename="camel"):
    """AUTH_LIST_USER (3005): the users whose names contain `filter`."""

    filter: str = ""


class AclHeader(Header, gc=False, rename="camel"):
    """AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007), AUTH_GET_ACL (3009). `subject`: `User:<name>`."""

    subject: str = ""


class DeleteAclHeader(Header, gc=False, rename="camel"):
    """AUTH_DELETE_ACL (3008). Without a resource, all policies of the subject."""

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class ListAclsHeader(Header, gc=False, rename="camel"):
    """AUTH_LIST_ACL (3010): policies of subjects, and for resources, whose names contain the filters."""

    subject_filter: str = ""
    resource_filter: str = ""
