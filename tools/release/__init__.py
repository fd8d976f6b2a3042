"""What a release is made of and checked with: lock files, licences, wheel and sdist."""
