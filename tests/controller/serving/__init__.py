"""Tests of controller/serving."""
