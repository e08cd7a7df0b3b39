"""What an agent asks the API server and tells it: the watch, the announcement, failures, and when each is sent."""
