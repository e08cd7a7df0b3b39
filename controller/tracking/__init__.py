"""Who is where: the ledgers of all groups, and what Pods tell of themselves."""
