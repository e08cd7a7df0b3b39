"""Builds our container images, and a base for them where no registry can be reached."""
