"""`inplace logs`: all workers' logs in one stream."""
