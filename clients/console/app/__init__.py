"""The console as a server: routes of all pages, and the two ways to serve it, `mqadmin console` and a broker."""
