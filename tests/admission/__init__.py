"""Tests of admission: who gets quota and a place, who waits, and who has to yield."""
