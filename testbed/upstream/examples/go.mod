// Upstream's example manifests for tests: the newest version of the module whose zip has them (site/static/examples).
module inplace.test/upstream/examples

go 1.26.0

require sigs.k8s.io/jobset v0.8.1
