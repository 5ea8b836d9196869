"""How a slave copies the tables of its master, and when."""
