"""A server as the operator's commands reach it: running, through its control socket, or stopped, by its directory."""
