"""`inplace lint`: what a manifest and a cluster get wrong."""
