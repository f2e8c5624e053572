"""Opening a folder: load, check, cut, rebuild."""
