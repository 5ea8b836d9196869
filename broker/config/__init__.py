"""Configuration: from the text of a properties file to frozen structs, one for each part of the daemon.

`parsing` checks texts, `keys` is the table of RocketMQ's key names, `sections` builds the structs, `derived` computes
the values that follow from several sections, and `live` applies changes while the daemon runs. Nothing here opens a
socket or a store. A new setting is a field of its part's struct and a row of `keys`.
"""
