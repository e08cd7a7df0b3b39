"""Code that agent, controller and simulator share: the protocol, its wire names, and the Kubernetes plumbing."""
