"""Tests of admission: quota and placement, pending gangs, and preemption."""
