"""Access control as in RocketMQ 4.9: accounts and permissions in YAML files, signed requests, white addresses.

    control          decides about a request: white addresses, account, signature, permissions
    accounts         an account and its permissions, read from a YAML value
    addresses        white addresses in all their forms
    files            the YAML files: read, reloaded after a change, changed by requests
    yaml_file        one YAML file: read and replaced
    reloading        polls and changes of the files, beside an event loop
    daemon_accounts  the same accounts for the metrics page
    errors           invalid values, with RocketMQ's text

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""
