"""`inplace stacks`: where every rank is now."""
