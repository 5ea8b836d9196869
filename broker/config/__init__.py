"""Configuration: from the text of a properties file to frozen structs, one per part of the daemon.

`parsing` checks texts, `keys` is the table of RocketMQ's key names, `sections` builds the structs, `derived` computes
the values that follow from several sections, and `live` applies changes while the daemon runs. This package opens no
socket and no store. A new setting is a field of its part's struct and a row of `keys`.
"""
