"""Access control: which caller may send which request, how much, and the record of it.

    requirements   the table: what each request code needs, and whether it changes the cluster
    caller         who sent a request: an account, and how it was proven
    gate           asked by the dispatcher before each request; combines the checks below
    plain_acl      RocketMQ 4.9: accounts and permissions in YAML files
    auth           RocketMQ 5.3: users and policies
    quotas         limits for each client, account and topic
    audit          the record of administrative requests and refusals

A check knows request codes, topics and groups by name only. Without access control, quotas and audit there is no gate,
and the dispatcher asks nothing.
"""
