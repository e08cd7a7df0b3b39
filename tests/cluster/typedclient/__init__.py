"""A client with Go types, which writes JobSets as Kueue, client-go and operators do."""
