"""What exists: frozen values that every other package speaks in. No I/O, no behaviour but invariants."""
