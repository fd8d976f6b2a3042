"""Devices that pods get by claim: what drivers publish, and what claims ask for and have."""
