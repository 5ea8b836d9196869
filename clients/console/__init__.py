"""The console: a cluster in the browser, as an ASGI application over `Admin`. docs/run/console.md introduces it.

    app/application.py   routes, start and stop
    guard.py             the checks of each request, before a page sees it
    pages/               one module for each part of the cluster; HTML is in templates/

`mqadmin console` serves it for any cluster; a broker serves it on `consolePort`. All HTML is made on the server. htmx
(static/htmx.min.js, version 2.0.11, unchanged) replaces fragments every few seconds; without JavaScript the pages work,
and do not refresh by themselves.
"""
