"""Pages of docs/reference that are generated from the code; tests compare them with what is committed."""
