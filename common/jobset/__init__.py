"""What a JobSet says: its spec, its status, its Jobs and Pods as they are read."""
