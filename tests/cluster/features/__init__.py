"""
The features of a JobSet controller, one by one, on a real kube-apiserver; compatibility.md and behaviour.md link here.

One controller process with the shipped permissions serves all tests of a session, each in a namespace of its own. The
tests play the Job controller, the scheduler and the garbage collector, except in test_living_jobs.py, where the real
ones work.
"""
