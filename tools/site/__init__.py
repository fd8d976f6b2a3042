"""The documentation as a static site: its pages, assembled for mkdocs, and a check of what that built."""
