"""What the commands of `clients` share: options, printed tables, drawings, and the lock of a file."""
