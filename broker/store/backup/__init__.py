"""Backups of a store directory that a broker may be using, and their restoration.

backed_up = backup(Path("store"), Path("/backup/orders"), Sizes.of(Path("store")))
restored = restore(Path("/backup/orders"), Path("new-store"))
"""

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.restoring import Restored, RestoreOptions, restore
from skylarkmq.broker.store.backup.taking import BackedUp, BackupOptions, backup

__all__ = ["BackedUp", "BackupError", "BackupOptions", "RestoreOptions", "Restored", "backup", "restore"]
