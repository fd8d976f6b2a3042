"""Who goes, and where: pure decisions over a snapshot."""
