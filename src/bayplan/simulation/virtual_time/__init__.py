"""Jobs arrive, start and end in virtual time; what decides is our own engine or a baseline."""
