"""What a release consists of, and the program that makes it: docs/release.md."""
