"""Trainers that people use, each with the few lines that it needs; import the module of your trainer alone."""
