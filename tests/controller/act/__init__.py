"""Tests of controller/act."""
