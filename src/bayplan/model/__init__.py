"""The domain model: frozen values that all other packages use. No I/O, no behaviour but invariants."""
