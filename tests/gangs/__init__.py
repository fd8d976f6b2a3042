"""Tests of gangs whose pods arrive one by one."""
