"""
Mistakes in the code, planted by the tests of tests.

`mistake` plants them. The other modules have those that both the campaign of faults (`tests.mutants`) and the model
checker (`tests.model`) must find.
"""
