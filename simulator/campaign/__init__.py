"""
Campaigns of faults: the real agent and the real controller, thousands of times, with everything that can go wrong.

`python -m simulator.campaign run --seed 7` runs one seed, `soak` many, `sieve` perturbs a scenario at every point,
`faults` prints the catalogue. One seed decides the group, the schedule of tasks, latencies and faults; the same seed
gives the same trace, whatever the process and PYTHONHASHSEED. `judge` watches the safety properties after every write
and every start of a worker, from the world alone; `liveness` sees what must come true once faults have stopped.

Where it lies, beside what `simulator.apiserver` and `simulator.cluster` say of themselves:

* The JobSet's CEL rules and the admission policies are left out, so that they cannot hide what the programs would do.
* Delays are short and wide (`scenario.SHORT`): order is what is looked for here, durations are not.
* Agents start at `agent.runtime.Agent`: the prelude, sockets, TLS and the HTTP/1.1 parser have tests of their own.
  `inplace-agent wait` is a model of agent/wait.py, for that blocks. EPOCH_FILE is a dictionary. A probe is answered at
  once, not held (docs/adr/0034).
* A killed process is unwound by Python, which runs its `finally` clauses; nothing they send leaves the process.
* A process that stands still still has its callbacks called: only its tasks stop.
* A node that dies takes its containers with it. One that is cut off and runs on would run workers that nobody counts;
  the API gives nobody the means to see that (docs/adr/0007-what-the-protocol-assumes.md).
"""
