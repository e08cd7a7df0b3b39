"""
Campaigns of faults: run the real agent and the real controller thousands of times, with every kind of fault.

`python -m simulator.campaign run --seed 7` runs one seed, `soak` many, `sieve` perturbs a scenario at every point,
`faults` prints the catalogue. One seed decides the group, the schedule of tasks, latencies and faults; the same seed
gives the same trace, whatever the process and PYTHONHASHSEED. `judge` checks the safety properties after every write
and every start of a worker, without asking agent or controller; `liveness` judges the run once faults have stopped.

Where it differs from reality, beside the lists of `simulator.apiserver` and `simulator.cluster`:

* The JobSet's CEL rules and the admission policies are left out, because they could hide a mistake of our programs.
* Delays are short and wide (`scenario.SHORT`): a campaign looks for wrong orders, not for durations.
* Agents start at `agent.agent`: the prelude, sockets, TLS and the HTTP/1.1 parser have tests of their own. EPOCH_FILE
  is a dictionary. A probe is answered at once, not held (docs/adr/0062).
* Python unwinds a killed process and runs its `finally` clauses; their requests do not leave the process.
* The callbacks of a paused process are still called; only its tasks pause.
* A node that dies ends its containers. A real node that is only cut off goes on running workers that no program
  counts; the API does not show them (docs/adr/0007-what-the-protocol-assumes.md).
"""
