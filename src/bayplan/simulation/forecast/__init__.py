"""When waiting gangs will start: run times from limits and history, and the queue run forward over draws."""
