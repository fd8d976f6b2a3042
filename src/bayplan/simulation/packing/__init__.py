"""Packing without time: pods arrive one after the other and stay, and strategies choose their nodes."""
