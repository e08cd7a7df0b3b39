"""Do what a plan says: observe, write the status, perform the actions."""
