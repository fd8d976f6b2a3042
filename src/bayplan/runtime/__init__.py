"""The loop and what surrounds it: clock, journal, metrics, election, webhooks."""
