"""Access control: which caller may send which request, how much, and the record of it.

    requests       the table: what each request code needs in both generations, and whether it changes the cluster
    caller         the sender of a request: its account, and the proof of it
    message_rights the topics of messages that a request names by their place in the log
    decision_cache the cache of both generations
    gate           called by the dispatcher before each request; combines the checks below
    plain_acl      RocketMQ 4.9: accounts and permissions in YAML files
    auth           RocketMQ 5.3: users and policies
    quotas         limits per second for each client, account and topic (token_buckets)
    counted_quotas, created_names    limits on connections and parked pulls, and on created topics and groups
    audit          the record of administrative requests and refusals (audit_writer, audit_sinks)
    networks       the networks from which changes of the cluster need no account
    certificates   accounts of TLS client certificates
    accounts       accounts of a daemon itself, for its name server and its metrics page
    exposure, secret_files    warnings about open listeners, and about files with secrets that others can read

Checks handle request codes, topics and groups by name only. Without access control, quotas and audit the gate checks
only requests that change the cluster, and the dispatcher does not call it for sends and pulls.
"""
