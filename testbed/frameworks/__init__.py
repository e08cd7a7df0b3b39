"""The training frameworks of users, each in a virtual environment of its own, and random kills while they train."""
