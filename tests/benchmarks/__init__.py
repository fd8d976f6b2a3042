"""How fast placement is, and how much memory it holds: measured, never asserted."""
