"""Tests of Bayplan; run them with `make test`."""
