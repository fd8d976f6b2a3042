"""Tests of gangs whose pods come one by one."""
