"""The ground of the other rooms: variables, arguments, addresses, exit codes, and the file that keeps the epoch."""
