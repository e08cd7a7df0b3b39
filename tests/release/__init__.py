"""Tests of the program that makes a release."""
