"""Tests of controller/api."""
