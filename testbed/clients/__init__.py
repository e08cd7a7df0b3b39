"""Programs of other projects that use JobSets, built from their Go modules and run on a control plane of the tests."""
