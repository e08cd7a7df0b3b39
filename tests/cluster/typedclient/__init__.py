"""A client with Go types: how Kueue, client-go and any operator write a JobSet back."""
