"""The daemon: remoting, processors, store, metadata, delivery, name server, put together in broker/daemon.py."""
