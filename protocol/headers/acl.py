"""Headers of the access control of RocketMQ 4.9: UPDATE_AND_CREATE_ACL_CONFIG (50), DELETE_ACL_CONFIG (51),
GET_BROKER_CLUSTER_ACL_INFO (52), UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53).

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header


class UpdateAclHeader(Header, gc=False, rename="camel"):
    """UPDATE_AND_CREATE_ACL_CONFIG (50). Lists are separated by commas; an absent member stays as it is."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: BoolText = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"<UpdateAclHeader {self.access_key}>"


class DeleteAclHeader(Header, gc=False, rename="camel"):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str | None = None


class UpdateWhiteAddressesHeader(Header, gc=False, rename="camel"):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53). `global_white_addrs` is separated by commas."""

    global_white_addrs: str | None = None
    acl_file_full_path: str | None = None


class AclVersionHeader(Header, gc=False, rename="camel"):
    """Response to GET_BROKER_CLUSTER_ACL_INFO (52). `version` and, by file, `all_acl_file_version` are JSON."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
