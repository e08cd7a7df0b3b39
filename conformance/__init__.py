"""Whether a controller and an agent keep the contract of KEP-467: in-place restart of JobSets."""
