"""Pulls: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

`processor` serves any pull, `checks` decides whether it may be served, `response` encodes the result, and `fast_path`
serves runs of pulls with the common header. Modules that serve other requests do not belong here.
"""
