"""The version, as a constant: reading package metadata would cost 20 ms."""

VERSION = "0.1.0"  # pyproject.toml's
