"""Conversations with an API server, held with the embedded backend and with the real one, and compared."""
